// The serving loop end to end: tokens a second with a flow beside dense attention or another flow, on the same prompts and in the
// same run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "agents/bench/bench.h"
#include "agents/bench/device_limits.h"
#include "agents/bench/serve_compare.h"
#include "agents/bench/serve_rate.h"
#include "agents/bench/serve_side.h"
#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/trace_options.h"
#include "host/weights/model_path.h"
#include "host/weights/random_weights.h"
#include "kernels/device/device_refusal.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

constexpr int kRateTokens = 128;  // of an answer at a rate, where nothing else is said
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

ModelConfig config_of(const BenchOptions& options) {
  if (!options.random_weights.empty()) return known_geometry(options.random_weights, options.layers);
  return load_config(model_path(options.model));
}

std::unique_ptr<Model> model_of(const BenchOptions& options, const ModelConfig& config, Device& device) {
  if (!options.random_weights.empty()) return create_random_model(config, device);
  return load_model(model_path(options.model), device);
}

Plan plan_of(const std::string& flow, const BenchOptions& options, const ModelConfig& config) {
  FlowGraph graph = read_flow(flow).trace(trace_options(config));
  require_device_takes(compile(graph).plan, options.device);
  set_budget(graph, options.budget);
  try {
    return compile(std::move(graph)).plan;
  } catch (const FlowError& error) {  // the script is not at fault where it says something else
    if (!options.budget.given()) throw;
    throw InputError(fmt::format("with the budget of --k, --first and --last: {}", error.message()), "raise one of them");
  }
}

/// Rows of a pass at most. Long ones multiply better on a GPU; while requests arrive they hold up those that decode.
int chunk_of(const BenchOptions& options) {
  if (options.chunk > 0 && options.chunk < 2 * options.batch) {
    throw InputError(fmt::format("--chunk {}: a pass has a row for each of the {} sequences, and as many again for prompts",
                                 options.chunk, options.batch),
                     fmt::format("give at least {}", 2 * options.batch));
  }
  if (options.chunk > 0) return options.chunk;
  const int rows = options.device == "cpu" ? 512 : (options.rates.empty() ? 8192 : 2048);
  return std::max(rows, 2 * options.batch);
}

/// Throws InputError unless the model has positions for prompts and answers. Where the number of steps is free, as many as fit.
void fit_positions(ServeSetup& setup, bool steps_given, bool at_rates) {
  const int meanwhile = setup.most_generated() - setup.generate;
  const int room = setup.config.max_positions - setup.tokens - meanwhile;
  const int least = steps_given ? setup.generate : least_steps_to_compare();
  if (room < least) {
    std::string parts =
        fmt::format("--tokens {} and {} to decode{}", setup.tokens, least, at_rates ? "" : ", untimed ones included");
    if (meanwhile > 0) parts += fmt::format(", after {} while the prompts of others are computed", meanwhile);
    std::vector<std::string> lower = {"--tokens"};
    if (steps_given) lower.emplace_back("--generate");
    if (meanwhile > 0) lower.emplace_back("--batch");
    throw InputError(fmt::format("{}: the model has {} positions", parts, setup.config.max_positions),
                     fmt::format("lower {}", fmt::join(lower, " or ")));
  }
  setup.generate = std::min(setup.generate, room);
}

/// Throws InputError unless the weights, and the pages of both sides where they are compared, fit the memory that is free.
void fit_memory(const ServeSetup& setup, const Plan& plan, const Plan* other, const BenchOptions& options) {
  const bool compared = options.rates.empty();
  const double weights = setup.weight_bytes();
  const double beside = compared ? setup.pool_bytes(other, setup.batch) : 0;
  const double flow = compared ? setup.pool_bytes(&plan, setup.batch) : 0;
  const double scratch = (compared ? 2 : 1) * setup.scratch_bytes() + 0.5 * kGiB;
  const auto free = static_cast<double>(setup.device.free_bytes());
  if (weights + beside + flow + scratch <= free) return;
  throw InputError(fmt::format("not enough memory: {:.1f} GiB of weights, {:.1f} GiB of pages for {} and {:.1f} GiB for "
                               "the flow ({} sequences of {} tokens), {:.1f} GiB beside them, and {:.1f} GiB are free",
                               weights / kGiB, beside / kGiB, other == nullptr ? "dense attention" : other->graph.name,
                               flow / kGiB, setup.batch, setup.tokens, scratch / kGiB, free / kGiB),
                   "lower --batch or --tokens, or choose a smaller model");
}

/// Whether each side computes its prompts: where the flow reads what their rows gave, and where they are computed under a
/// pattern, which K and V follow from.
bool computes_prompts(const BenchOptions& options, const Plan& plan) {
  if (plan.evicts() && options.disaggregated) {
    throw InputError("--disaggregated: a flow that evicts tokens takes no K and V of prompts from elsewhere", "leave it out");
  }
  return plan.prompt_rows_wanted() > 0 || plan.evicts() || plan.bounds_prompts() ||
         ((!options.rates.empty() || !options.random_weights.empty()) && !options.disaggregated);
}

}  // namespace

BenchReport run_serve_bench(const BenchOptions& options) {
  const ModelConfig config = config_of(options);
  // What is wrong with a flow is said before the work.
  const Plan plan = plan_of(options.flow.empty() ? "block_topk" : options.flow, options, config);
  const std::optional<Plan> other =
      options.beside.empty() ? std::nullopt : std::optional(plan_of(options.beside, options, config));
  const Plan* const beside = other ? &*other : nullptr;
  const auto device = create_device(options.device, options.threads);
  const bool at_rates = !options.rates.empty();
  const bool steps_given = at_rates || options.generate > 0 || !options.random_weights.empty();
  ServeSetup setup{.device = *device,
                   .config = config,
                   .model = nullptr,
                   .batch = options.batch,
                   .tokens = options.tokens,
                   .generate = at_rates ? (options.generate > 0 ? options.generate : kRateTokens) : steps_to_compare(options),
                   .chunk = chunk_of(options),
                   .own_prompts = computes_prompts(options, plan) || (other && computes_prompts(options, *other)),
                   .disaggregated = options.disaggregated};
  fit_positions(setup, steps_given, at_rates);
  fit_memory(setup, plan, beside, options);
  BenchReport report;
  report.name = "serve";
  report.copy_tb_per_s = measure_copy_of(options.device, options.threads);
  const auto model = model_of(options, config, *device);
  setup.model = model.get();
  if (at_rates) {
    const double memory = static_cast<double>(setup.device.free_bytes()) - setup.scratch_bytes() - kGiB;
    report.rows = measure_rates(setup, plan, options.rates, options.seconds, memory);
  } else {
    compare_decoding(options, setup, plan, beside, report);
  }
  return report;
}

}  // namespace sluice
