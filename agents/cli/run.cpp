#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "agents/cli/arguments.h"
#include "agents/cli/commands.h"
#include "agents/evaluation/flow_script.h"
#include "host/weights/safetensors.h"
#include "host/weights/safetensors_writer.h"
#include "kernels/device.h"
#include "kernels/device/batch_builder.h"
#include "kernels/device/device_refusal.h"
#include "kernels/device/open_pass.h"
#include "scripting/base/output_file.h"
#include "scripting/base/printable_text.h"
#include "scripting/graph/plan.h"
#include "scripting/graph/selections.h"

namespace sluice::cli {

namespace {

struct RunOptions {
  std::string flow;
  std::string inputs;
  std::string out;
  std::string device = "cpu";
  int threads = 0;
  double scale = 0;  // 0: 1/sqrt(dim)
  uint64_t seed = 0;
};

/// One layer's tensors, as float32.
struct Inputs {
  std::vector<float> keys;     // [tokens, kv_heads, dim]
  std::vector<float> values;   // [tokens, kv_heads, dim]
  std::vector<float> queries;  // [steps, query_heads, dim]
  int tokens = 0;
  int kv_heads = 0;
  int steps = 0;
  int query_heads = 0;
  int dim = 0;
};

constexpr const char* kLayout = "wanted are k and v [tokens, kv_heads, dim] and q [steps, q_heads, dim], as F32, F16 or BF16";

/// A tensor of rank 3. Throws InputError.
const StoredTensor& tensor_of(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor* tensor = file.find(name);
  if (tensor == nullptr) throw InputError(fmt::format("{}: there is no tensor {}", file.path(), name), kLayout);
  const StoredType type = tensor->type;
  if (type != StoredType::kF32 && type != StoredType::kF16 && type != StoredType::kBF16) {
    throw InputError(fmt::format("{}: {} is of type {}", file.path(), name, format_of(type).name), kLayout);
  }
  if (tensor->shape.size() != 3) throw InputError(fmt::format("{}: {} is {}", file.path(), name, tensor->shape_text()), kLayout);
  for (const int64_t extent : tensor->shape) {
    if (extent < 1) throw InputError(fmt::format("{}: {} is {}, and so empty", file.path(), name, tensor->shape_text()), kLayout);
    if (extent > std::numeric_limits<int32_t>::max()) {
      throw InputError(fmt::format("{}: {} is {}, too large", file.path(), name, tensor->shape_text()));
    }
  }
  return *tensor;
}

Inputs read_inputs(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const StoredTensor& k = tensor_of(file, "k");
  const StoredTensor& v = tensor_of(file, "v");
  const StoredTensor& q = tensor_of(file, "q");
  if (k.shape != v.shape) {
    throw InputError(fmt::format("{}: k is {} and v is {}", path, k.shape_text(), v.shape_text()),
                     "they must have the same shape");
  }
  if (q.shape[2] != k.shape[2]) {
    throw InputError(
        fmt::format("{}: q is {} and k is {}: their dim, the last axis, differs", path, q.shape_text(), k.shape_text()), kLayout);
  }
  if (q.shape[1] % k.shape[1] != 0) {
    throw InputError(fmt::format("{}: {} query heads cannot share {} KV heads", path, q.shape[1], k.shape[1]),
                     "the number of query heads must be a multiple of the number of KV heads");
  }
  if (q.shape[0] > k.shape[0]) {
    throw InputError(fmt::format("{}: {} steps need as many tokens, and there are {}", path, q.shape[0], k.shape[0]),
                     "step i sees the first tokens - steps + 1 + i tokens");
  }
  const auto extent = [](const StoredTensor& tensor, size_t axis) { return static_cast<int>(tensor.shape[axis]); };
  return {k.to_f32(), v.to_f32(), q.to_f32(), extent(k, 0), extent(k, 1), extent(q, 0), extent(q, 1), extent(k, 2)};
}

/// Whatever the flow says of layers, this one runs it: there is no other.
Plan compile_for_one_layer(const FlowScript& script, const Inputs& inputs, const std::string& device) {
  FlowGraph graph = script.trace({.head_dim = inputs.dim, .group = inputs.query_heads / inputs.kv_heads});
  if (graph.selection() != kNoNode) graph.layers = LayerChoice{};
  Plan plan = compile(std::move(graph)).plan;
  require_device_takes(plan, device);
  return plan;
}

/// What the steps gave; shapes as the file has them.
struct Outputs {
  std::vector<float> output;      // [steps, query_heads, dim]
  std::vector<int32_t> selected;  // [steps, kv_heads, pages]
  std::vector<int32_t> counts;    // [steps, kv_heads]
  std::vector<float> scores;      // [steps, kv_heads, pages]
  int pages = 0;
};

/// One layer of one request, driven as an engine would.
class LayerRun {
 public:
  LayerRun(const RunOptions& options, const Inputs& inputs, const Plan& plan)
      : options_(options),
        inputs_(inputs),
        device_(create_device(options.device, options.threads)),
        pages_(pages_for(inputs.tokens, plan.layout.page)),
        pool_(device_->create_pool(1, inputs.kv_heads, pages_, plan.layout)),
        page_indices_(static_cast<size_t>(pages_)),
        score_rows_(scored_selections(plan.graph).size()) {
    std::iota(page_indices_.begin(), page_indices_.end(), 0);
    flow_ = device_->compile(plan, 1, inputs.kv_heads);
    device_->reserve({.rows = std::min(kChunk, inputs.tokens),
                      .sequences = 1,
                      .pages_per_sequence = pages_,
                      .query_heads = inputs.query_heads,
                      .kv_heads = inputs.kv_heads,
                      .head_dim = inputs.dim,
                      .page = plan.layout.page});
    state_ = flow_->create_state(pages_);
    has_selection_ = plan.graph.selection() != kNoNode;
    const int64_t query_floats = int64_t{inputs.query_heads} * inputs.dim;
    const int64_t key_floats = int64_t{inputs.kv_heads} * inputs.dim;
    keys_ = device_->allocate(sizeof(float) * kChunk * key_floats);
    values_ = device_->allocate(sizeof(float) * kChunk * key_floats);
    query_ = device_->allocate(sizeof(float) * query_floats);
    output_ = device_->allocate(sizeof(float) * query_floats);
  }

  Outputs run() {
    const size_t slots = static_cast<size_t>(inputs_.steps) * inputs_.kv_heads;
    Outputs outputs;
    outputs.pages = pages_;
    outputs.output.resize(inputs_.queries.size());
    outputs.selected.assign(slots * pages_, -1);
    outputs.counts.assign(slots, 0);
    if (score_rows_ > 0) outputs.scores.resize(slots * pages_);
    const int before = inputs_.tokens - inputs_.steps;
    for (int first = 0; first < before; first += kChunk) prefill(first, std::min(kChunk, before - first));
    for (int step = 0; step < inputs_.steps; ++step) decode(step, before + step, outputs);
    return outputs;
  }

 private:
  static constexpr int kChunk = 512;

  /// Calls `body` within a pass that appends tokens [first, first + count).
  template <class Body>
  void pass(int first, int count, bool decoding, Body&& body) {
    BatchBuilder batch(pool_->layout().page);
    batch.add({.first = first, .rows = count, .decoding = decoding, .seed = options_.seed, .state = state_.get()}, page_indices_);
    const OpenPass open(*device_, batch.batch(), *pool_);
    const int64_t columns = int64_t{inputs_.kv_heads} * inputs_.dim;
    const size_t bytes = sizeof(float) * count * columns;
    device_->write(keys_->data(), inputs_.keys.data() + first * columns, bytes);
    device_->write(values_->data(), inputs_.values.data() + first * columns, bytes);
    device_->append(0, matrix(*keys_, count, columns), matrix(*values_, count, columns));
    device_->refresh_fields(0, *flow_);
    body();
  }

  void prefill(int first, int count) {
    pass(first, count, false, [] {});
  }

  void decode(int step, int token, Outputs& outputs) {
    const int64_t columns = int64_t{inputs_.query_heads} * inputs_.dim;
    const size_t slot = static_cast<size_t>(step) * inputs_.kv_heads;
    AttentionProbe probe;
    // Pages that a step does not have yet score lowest.
    std::vector<float> scores(inputs_.kv_heads * score_rows_ * pages_, -std::numeric_limits<float>::infinity());
    probe.scores = scores.empty() ? nullptr : scores.data();
    probe.selected = outputs.selected.data() + slot * pages_;
    probe.counts = outputs.counts.data() + slot;
    probe.score_capacity = probe.selected_capacity = pages_;
    const auto scale = static_cast<float>(options_.scale != 0 ? options_.scale : 1 / std::sqrt(static_cast<double>(inputs_.dim)));
    pass(token, 1, true, [&] {
      device_->write(query_->data(), inputs_.queries.data() + step * columns, sizeof(float) * columns);
      const Device::Attention call{0, inputs_.query_heads, scale, has_selection_ ? flow_.get() : nullptr, &probe};
      device_->attention(call, matrix(*query_, 1, columns), matrix(*output_, 1, columns));
      device_->synchronize();
      device_->read(outputs.output.data() + step * columns, output_->data(), sizeof(float) * columns);
    });
    for (int head = 0; head < inputs_.kv_heads && score_rows_ > 0; ++head) {  // those of the last selection that has some
      const auto last = scores.begin() + static_cast<ptrdiff_t>(((head + 1) * score_rows_ - 1) * pages_);
      std::copy_n(last, pages_, outputs.scores.begin() + static_cast<ptrdiff_t>((slot + head) * pages_));
    }
  }

  static Matrix matrix(const Memory& memory, int64_t rows, int64_t columns) {
    return {memory.data(), DataType::kF32, rows, columns, columns};
  }

  const RunOptions& options_;
  const Inputs& inputs_;
  std::unique_ptr<Device> device_;
  int pages_;
  std::unique_ptr<Pool> pool_;
  std::vector<int32_t> page_indices_;
  std::unique_ptr<CompiledFlow> flow_;
  std::unique_ptr<RequestState> state_;
  std::unique_ptr<Memory> keys_;
  std::unique_ptr<Memory> values_;
  std::unique_ptr<Memory> query_;
  std::unique_ptr<Memory> output_;
  size_t score_rows_;
  bool has_selection_ = false;
};

/// The first `most` of every list of `pages` entries.
std::vector<int32_t> cut_lists(const std::vector<int32_t>& lists, int pages, int most) {
  std::vector<int32_t> cut;
  for (size_t list = 0; list < lists.size(); list += pages) {
    cut.insert(cut.end(), lists.begin() + static_cast<std::ptrdiff_t>(list),
               lists.begin() + static_cast<std::ptrdiff_t>(list) + most);
  }
  return cut;
}

void run(const RunOptions& options) {
  if (options.inputs == "-") {
    throw InputError("--inputs -: standard input cannot be used here", "give the path of a safetensors file");
  }
  const FlowScript script = read_flow(options.flow);
  OutputFile out(options.out, {script.file, options.inputs});
  const Inputs inputs = read_inputs(options.inputs);
  const Plan plan = compile_for_one_layer(script, inputs, options.device);
  const Outputs outputs = LayerRun(options, inputs, plan).run();
  const int most = *std::max_element(outputs.counts.begin(), outputs.counts.end());
  SafetensorsWriter writer;
  writer.add("output", {inputs.steps, inputs.query_heads, inputs.dim}, outputs.output);
  writer.add("selected", {inputs.steps, inputs.kv_heads, most}, cut_lists(outputs.selected, outputs.pages, most));
  if (!outputs.scores.empty()) writer.add("scores", {inputs.steps, inputs.kv_heads, outputs.pages}, outputs.scores);
  out.write([&](const std::string& path) { writer.write(path); });
  fmt::print("{}: {} step{} over {} token{}, {} of {} pages at most, written to {}\n", printable(plan.graph.name), inputs.steps,
             inputs.steps == 1 ? "" : "s", inputs.tokens, inputs.tokens == 1 ? "" : "s", most, outputs.pages,
             printable(options.out));
}

}  // namespace

void add_run(CLI::App& app) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Runs a flow on one layer's tensors, outside any model.");
  command->footer(
      "In:  k, v [tokens, kv_heads, dim] and q [steps, q_heads, dim]. Step i sees the first tokens - steps + 1 + i tokens.\n"
      "Out: output [steps, q_heads, dim], selected [steps, kv_heads, max] ascending and padded with -1, and, where the flow\n"
      "     has them, scores [steps, kv_heads, pages] before any page is forced (-inf for pages that a step does not have).\n"
      "Example: sluice run quest --inputs in.safetensors --out out.safetensors");
  command->add_option("flow", options->flow, "Lua file, - for standard input, or the name of a shipped flow")->required();
  command->add_option("--inputs", options->inputs, "Safetensors file with k, v and q")->required();
  command->add_option("--out", options->out, "Safetensors file to write")->required();
  command->add_option("--device", options->device, "cpu or cuda")->capture_default_str();
  command->add_option("--threads", options->threads, "Threads; 0: all cores this process may use")
      ->check(decimal_number(0, 1024));
  command->add_option("--scale", options->scale, "Factor of q.k in attention; 0: 1/sqrt(dim)")->check(finite_number(-1e6, 1e6));
  command->add_option("--seed", options->seed, "Seed of random choices that the flow makes")
      ->check(decimal_number(uint64_t{0}, std::numeric_limits<uint64_t>::max()));
  command->callback([options] { run(*options); });
}

}  // namespace sluice::cli
