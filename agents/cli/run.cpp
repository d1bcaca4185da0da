#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "agents/cli/arguments.h"
#include "agents/cli/commands.h"
#include "agents/evaluation/flow_script.h"
#include "agents/traces/layer_replay.h"
#include "agents/traces/layer_tensors.h"
#include "host/weights/safetensors_writer.h"
#include "kernels/device.h"
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

/// What the steps gave; shapes as the file has them.
struct Outputs {
  std::vector<float> output;      // [steps, query_heads, dim]
  std::vector<int32_t> selected;  // [steps, kv_heads, pages]
  std::vector<int32_t> counts;    // [steps, kv_heads]
  std::vector<float> scores;      // [steps, kv_heads, pages]
  int pages = 0;
  int scores_a_page = 1;
};

/// The steps of a layer.
Outputs run_layer(const RunOptions& options, const LayerTensors& inputs, const Plan& plan, Device& device) {
  Outputs outputs;
  outputs.pages = pages_for(inputs.tokens, plan.layout.page);
  const auto pages = static_cast<size_t>(outputs.pages);
  outputs.scores_a_page = scores_a_page(plan.graph);
  const size_t score_rows = scored_selections(plan.graph).size();
  LayerReplay replay(device, inputs, plan,
                     {.scale = static_cast<float>(options.scale), .seed = options.seed, .wants_scores = score_rows > 0});
  const auto append = [](auto& all, const auto& more) { all.insert(all.end(), more.begin(), more.end()); };
  replay.run([&](int /*step*/, const LayerStep& step) {
    append(outputs.output, step.output);
    append(outputs.selected, step.selected);
    append(outputs.counts, step.counts);
    for (size_t head = 0; head < step.counts.size() && score_rows > 0; ++head) {  // those of the last selection that has some
      const size_t numbers = pages * static_cast<size_t>(outputs.scores_a_page);
      append(outputs.scores, step.scores.subspan(((head + 1) * score_rows - 1) * numbers, numbers));
    }
  });
  return outputs;
}

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
  const LayerTensors inputs = read_layer_tensors(options.inputs);
  const auto device = create_device(options.device, options.threads);
  const Plan plan = compile_for_one_layer(script.trace({.head_dim = inputs.dim, .group = inputs.group()}), *device);
  const Outputs outputs = run_layer(options, inputs, plan, *device);
  const int most = *std::max_element(outputs.counts.begin(), outputs.counts.end());
  SafetensorsWriter writer;
  writer.add("output", {inputs.steps, inputs.query_heads, inputs.dim}, outputs.output);
  writer.add("selected", {inputs.steps, inputs.kv_heads, most}, cut_lists(outputs.selected, outputs.pages, most));
  if (!outputs.scores.empty())
    writer.add("scores", {inputs.steps, inputs.kv_heads, outputs.pages * outputs.scores_a_page}, outputs.scores);
  out.write([&](const std::string& path) { writer.write(path); });
  fmt::print("{}: {} step{} over {} token{}, {} of {} pages at most, written to {}\n", printable(plan.graph.name), inputs.steps,
             inputs.steps == 1 ? "" : "s", inputs.tokens, inputs.tokens == 1 ? "" : "s", most, outputs.pages,
             printable(options.out));
  const auto not_numbers = std::count_if(outputs.output.begin(), outputs.output.end(), [](float x) { return std::isnan(x); });
  if (not_numbers > 0) fmt::print(stderr, "warning: {} of {} outputs are NaN\n", not_numbers, outputs.output.size());
}

}  // namespace

void add_run(CLI::App& app) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Runs a flow on one layer's tensors, outside any model.");
  command->footer(
      "In:  k, v [tokens, kv_heads, dim] and q [steps, q_heads, dim]. Step i sees the first tokens - steps + 1 + i tokens.\n"
      "Out: output [steps, q_heads, dim], selected [steps, kv_heads, max] ascending and padded with -1, and, where the flow\n"
      "     has them, scores [steps, kv_heads, pages] before any page is forced (-inf for pages that a step does not have);\n"
      "     of a flow that selects tokens a number for each token, and selected has the pages that have one.\n"
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
