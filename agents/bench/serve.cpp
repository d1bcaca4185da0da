// The serving loop end to end: tokens a second with dense attention beside a flow, on the same prompts and in the same run.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "agents/bench/bench.h"
#include "agents/evaluation/statistics.h"
#include "agents/flow_script.h"
#include "agents/trace_options.h"
#include "host/default_model.h"
#include "host/engine.h"
#include "host/random.h"
#include "host/tensor.h"
#include "scripting/graph/error.h"

namespace sluice {
namespace {

constexpr int kDensePage = 16;
constexpr int kWarmSteps = 2;     // the first ones touch fresh memory
constexpr int kStepsPerTurn = 4;  // decode steps of one side before it is the other's turn
constexpr int kLeastPairs = 5;
constexpr int kMostPairs = 200;
constexpr int kCheckedTokens = 4;  // of each sequence, against a run of its own
constexpr double kMiB = 1024.0 * 1024.0;

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

std::vector<int32_t> random_prompt(int tokens, int vocabulary) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < tokens; ++i) {
    prompt.push_back(static_cast<int32_t>(counter_uniform(7, static_cast<uint64_t>(i)) * vocabulary));
  }
  return prompt;
}

struct Setup {
  Device& device;
  const Model& model;
  int batch;
  int tokens;
  int steps;  // most decode steps that a sequence will make
  std::vector<int32_t> prompt;

  // Sequences share all of the prompt but its last token, so that they do not decode in step.
  std::vector<int32_t> prompt_of(int sequence) const {
    std::vector<int32_t> own = prompt;
    own.back() = (own.back() + sequence) % model.config().vocabulary;
    return own;
  }

  EngineOptions options(const Plan* plan, int sequences) const {
    EngineOptions engine;
    const int page = plan != nullptr ? plan->layout.page : kDensePage;
    engine.page = page;
    engine.pages = sequences * pages_for(tokens + steps, page);
    engine.max_batch = sequences;
    engine.max_pass_tokens = std::max(512, sequences);
    engine.prefix_cache = false;  // every sequence reads K and V of its own
    return engine;
  }
};

/// An engine in which every sequence decodes.
class Side {
 public:
  Side(const Setup& setup, const Plan* plan, const std::shared_ptr<const KvSnapshot>& snapshot,
       double resident_before = resident_bytes())
      : kv_(plan != nullptr ? plan->layout.kv : setup.options(plan, 1).kv),
        pool_bytes_(pool_bytes(setup, plan)),
        tokens_(static_cast<size_t>(setup.batch)),
        engine_(setup.device, setup.model, plan, setup.options(plan, setup.batch)) {
    engine_.on_token([this](uint64_t id, int32_t token) { tokens_[id - 1].push_back(token); });
    for (auto& list : tokens_) list.reserve(static_cast<size_t>(setup.steps));
    for (int i = 0; i < setup.batch; ++i) {
      Request request;
      request.prompt = setup.prompt_of(i);
      request.max_tokens = setup.steps;
      request.ignore_eos = true;
      request.snapshot = snapshot;
      engine_.submit(std::move(request));
    }
    while (engine_.stats().decode_passes < kWarmSteps) step();
    const EngineStats& now = engine_.stats();
    const double used = static_cast<double>(now.pages_total - now.pages_free) / now.pages_total;  // pages are mapped when written
    resident_overhead_ = resident_bytes() - resident_before - pool_bytes_ * used;
  }

  /// Seconds of one turn of decode steps.
  double turn() {
    const double before = engine_.stats().decode_seconds;
    for (int i = 0; i < kStepsPerTurn; ++i) step();
    return engine_.stats().decode_seconds - before;
  }

  const EngineStats& stats() const { return engine_.stats(); }
  const std::vector<int32_t>& tokens(int sequence) const { return tokens_[static_cast<size_t>(sequence)]; }
  DataType kv() const { return kv_; }
  double pool() const { return pool_bytes_; }
  /// What the process grew by for this side, beyond the pages that it uses.
  double resident_overhead() const { return resident_overhead_; }

 private:
  static double pool_bytes(const Setup& setup, const Plan* plan) {
    const ModelConfig& config = setup.model.config();
    const EngineOptions options = setup.options(plan, setup.batch);
    const PageLayout layout =
        plan != nullptr ? plan->layout : page_layout({config.head_dim, config.group(), options.page, options.kv}, {});
    return static_cast<double>(layout.bytes) * config.layers * config.kv_heads * options.pages;
  }

  void step() {
    if (!engine_.step()) throw InternalError("the benchmark's engine ran out of work");
  }

  DataType kv_;
  double pool_bytes_;
  double resident_overhead_ = 0;
  std::vector<std::vector<int32_t>> tokens_;
  Engine engine_;
};

/// Computes the prompt once; both sides start from its K and V.
std::shared_ptr<const KvSnapshot> prefill(const Setup& setup, BenchRow& row) {
  Engine engine(setup.device, setup.model, nullptr, setup.options(nullptr, 1));
  Request request;
  request.prompt = setup.prompt;
  request.max_tokens = 1;
  request.want_snapshot = true;
  engine.submit(std::move(request));
  auto results = engine.run_all();
  const EngineStats& stats = engine.stats();
  row.name = "prefill";
  row.shape = fmt::format("tokens {}, chunks of 512", setup.tokens);
  row.time_us = stats.prefill_seconds * 1e6;
  row.note = fmt::format("{:.0f} tokens/s", static_cast<double>(stats.prefill_tokens) / stats.prefill_seconds);
  return results.at(0).snapshot;
}

/// The first tokens of every sequence equal those of an engine of its own that computes the prompt itself, in other chunks.
bool agrees_alone(const Setup& setup, const Plan* plan, const Side& side) {
  EngineOptions options = setup.options(plan, 1);
  options.max_pass_tokens = 384;
  options.prefix_cache = true;  // one prefill for all of the sequences
  Engine engine(setup.device, setup.model, plan, options);
  for (int i = 0; i < setup.batch; ++i) {
    Request request;
    request.prompt = setup.prompt_of(i);
    request.max_tokens = kCheckedTokens;
    request.ignore_eos = true;
    engine.submit(std::move(request));
    const std::vector<int32_t> alone = engine.run_all().at(0).tokens;
    if (!std::equal(alone.begin(), alone.end(), side.tokens(i).begin())) return false;
  }
  return true;
}

BenchRow decode_row(const Setup& setup, const std::string& name, const Side& side, const std::vector<double>& turns,
                    double kv_share, double copy_tb_per_s) {
  const ModelConfig& config = setup.model.config();
  BenchRow row;
  row.name = name;
  row.shape = fmt::format("batch {}, tokens {}", setup.batch, setup.tokens);
  row.time_us = median(turns) / kStepsPerTurn * 1e6;
  const double kv = 2.0 * setup.batch * setup.tokens * config.layers * config.kv_heads * config.head_dim * size_of(side.kv());
  row.bytes = static_cast<double>(setup.model.weight_bytes()) + kv * kv_share;
  row.limit_us = row.bytes / copy_tb_per_s / 1e6;
  row.note = fmt::format("{:.0f} tokens/s, pool {:.0f} MiB, overhead {:.0f} MiB counted, {:.0f} MiB resident",
                         setup.batch / row.time_us * 1e6, side.pool() / kMiB,
                         static_cast<double>(side.stats().overhead_bytes) / kMiB, side.resident_overhead() / kMiB);
  return row;
}

Plan make_plan(const std::string& flow, const ModelConfig& config) {
  return compile(read_flow(flow).trace(trace_options(config))).plan;
}

}  // namespace

BenchReport run_serve_bench(const BenchOptions& options) {
  const std::string directory = options.model.empty() ? default_model() : options.model;
  const std::string flow = options.flow.empty() ? "block_topk" : options.flow;
  const auto device = create_device(options.device, options.threads);
  const Plan plan = make_plan(flow, load_config(directory));
  const auto model = load_model(directory, *device);
  const int room = model->config().max_positions - options.tokens;
  const int steps = std::min(kWarmSteps + kMostPairs * kStepsPerTurn + 1, room);
  if (steps < kWarmSteps + kLeastPairs * kStepsPerTurn + 1) {
    throw InputError(fmt::format("--tokens {}: the model has {} positions", options.tokens, model->config().max_positions),
                     "leave some to generate");
  }
  const Setup setup{*device,        *model, options.batch,
                    options.tokens, steps,  random_prompt(options.tokens, model->config().vocabulary)};

  BenchReport report;
  report.name = "serve";
  report.copy_tb_per_s = measure_copy_bandwidth(options.threads);
  BenchRow prefill_row;
  std::shared_ptr<const KvSnapshot> snapshot = prefill(setup, prefill_row);
  Side dense(setup, nullptr, snapshot);
  Side sparse(setup, &plan, snapshot);
  std::vector<double> dense_turns;
  std::vector<double> sparse_turns;
  const auto start = std::chrono::steady_clock::now();
  const auto enough = [&] {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return static_cast<int>(dense_turns.size()) >= kLeastPairs && seconds >= 2 * options.seconds;
  };
  const int most_pairs = (steps - kWarmSteps - 1) / kStepsPerTurn;
  while (static_cast<int>(dense_turns.size()) < most_pairs && !enough()) {
    const bool dense_first = dense_turns.size() % 2 == 0;
    if (dense_first) dense_turns.push_back(dense.turn());
    sparse_turns.push_back(sparse.turn());
    if (!dense_first) dense_turns.push_back(dense.turn());
  }

  const EngineStats& stats = sparse.stats();
  const double share =
      stats.pages_available > 0 ? static_cast<double>(stats.pages_attended) / static_cast<double>(stats.pages_available) : 1;
  BenchRow dense_row = decode_row(setup, "dense decode", dense, dense_turns, 1, report.copy_tb_per_s);
  BenchRow sparse_row = decode_row(setup, plan.graph.name + " decode", sparse, sparse_turns, share, report.copy_tb_per_s);
  const Ratio ratio = paired_ratio(dense_turns, sparse_turns);
  sparse_row.note +=
      fmt::format(", {:.0f}% of the pages, {:.2f}x dense [{:.2f}, {:.2f}]", 100 * share, ratio.ratio, ratio.low, ratio.high);
  dense_row.correct = agrees_alone(setup, nullptr, dense);
  sparse_row.correct = agrees_alone(setup, &plan, sparse);
  prefill_row.correct = dense_row.correct;  // which starts from it and is judged by another prefill
  report.rows = {prefill_row, dense_row, sparse_row};
  return report;
}

}  // namespace sluice
