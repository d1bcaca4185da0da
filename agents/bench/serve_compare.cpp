#include "agents/bench/serve_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agents/bench/step_profiler.h"
#include "agents/evaluation/statistics.h"
#include "scripting/passes/traffic.h"

namespace sluice {
namespace {

constexpr int kLeastPairs = 5;
constexpr int kMostPairs = 200;
constexpr int kRandomSteps = 32;   // measured of a model with random weights, where nothing else is said
constexpr int kProfiledSteps = 4;  // at least 2
constexpr int kCheckedTokens = 4;  // of each sequence, against a run of its own
constexpr double kMiB = 1024.0 * 1024.0;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Turns that are measured of each side at most.
int most_turns(const BenchOptions& options) {
  const int steps = options.generate > 0 ? options.generate : (options.random_weights.empty() ? 0 : kRandomSteps);
  if (steps == 0) return kMostPairs;
  return std::max(2, (steps + ServeSide::kStepsPerTurn - 1) / ServeSide::kStepsPerTurn);
}

/// Steps that a profile may take.
int profiled_steps(const BenchOptions& options) { return options.profile ? StepProfiler::kMostRuns * kProfiledSteps : 0; }

/// Computes a prompt by itself: its time, and for prompts that all sides start from, its K and V.
std::shared_ptr<const KvSnapshot> prefill(const ServeSetup& setup, BenchRow& row) {
  EngineOptions options = setup.options(nullptr, 1);
  options.run_ahead = false;  // what follows a prompt is not part of its time
  Engine engine(setup.device, *setup.model, nullptr, options);
  double seconds = 0;
  double tokens = 0;
  std::vector<RequestResult> results;
  for (int i = setup.own_prompts ? 0 : 1; i < 2; ++i) {  // one to warm up, where it costs little
    Request request;
    request.prompt = setup.prompt_of(0);
    request.max_tokens = 1;
    request.want_snapshot = !setup.own_prompts;
    engine.submit(std::move(request));
    seconds = 0;
    tokens = 0;
    for (bool more = true; more;) {
      const uint64_t before = engine.stats().prefill_tokens;
      const auto start = std::chrono::steady_clock::now();
      more = engine.step();
      setup.device.synchronize();
      const uint64_t computed = engine.stats().prefill_tokens - before;
      tokens += static_cast<double>(computed);
      if (computed > 0) seconds += seconds_since(start);
    }
    results = engine.take_finished();
    require_finite(results);
  }
  row.name = "prefill";
  row.shape = fmt::format("tokens {}, chunks of {}", setup.tokens, setup.chunk);
  row.time_us = seconds * 1e6;
  row.metrics = {{"tokens_per_s", tokens / seconds}};
  row.note = fmt::format("{:.0f} tokens/s", tokens / seconds);
  return results.at(0).snapshot;
}

/// The first tokens of every sequence equal those of an engine of its own that computes the prompt itself, in other chunks; where
/// activations are rounded, which may part two of nearly the same probability, those of three in four.
bool agrees_alone(const ServeSetup& setup, const Plan* plan, const ServeSide& side) {
  EngineOptions options = setup.options(plan, 1);
  options.max_pass_tokens = 384;
  options.prefix_cache = true;  // one prefill for all of the sequences
  Engine engine(setup.device, *setup.model, plan, options);
  int same = 0;
  for (int i = 0; i < setup.batch; ++i) {
    Request request;
    request.prompt = setup.prompt_of(i);
    request.max_tokens = kCheckedTokens;
    request.ignore_eos = true;
    engine.submit(std::move(request));
    const std::vector<int32_t> alone = engine.run_all().at(0).tokens;
    same += std::equal(alone.begin(), alone.end(), side.tokens(i).begin()) ? 1 : 0;
  }
  return setup.device.info().activation == DataType::kF32 ? same == setup.batch : 4 * same >= 3 * setup.batch;
}

/// For random weights, whose best tokens are often nearly as good as the next: the first token of a few sequences, computed alone
/// in other chunks, must be the same for most of them. By chance none would be, of so many tokens.
bool mostly_agrees_alone(const ServeSetup& setup, const Plan* plan, const ServeSide& side) {
  EngineOptions options = setup.options(plan, 1);
  options.max_pass_tokens = std::max(1, setup.chunk * 3 / 4);
  Engine engine(setup.device, *setup.model, plan, options);
  const std::set<int> checked = {0, setup.batch / 3, 2 * setup.batch / 3, setup.batch - 1};
  size_t same = 0;
  for (const int sequence : checked) {
    Request request;
    request.prompt = setup.prompt_of(sequence);
    request.max_tokens = 1;
    request.ignore_eos = true;
    engine.submit(std::move(request));
    same += engine.run_all().at(0).tokens.at(0) == side.tokens(sequence).at(0) ? 1 : 0;
  }
  return 2 * same > checked.size();
}

/// Bytes of K, V and cached fields that a decode step reads, of `measured` passes that were the last.
double cache_bytes(const ServeSetup& setup, const Plan* plan, const ServeSide& side, double measured) {
  const ModelConfig& config = setup.config;
  double tokens = 0;  // of all sequences, in the middle of what was measured
  for (int i = 0; i < setup.batch; ++i) tokens += setup.tokens + static_cast<double>(side.tokens(i).size()) - measured / 2;
  const double token_bytes = 2.0 * config.head_dim * static_cast<double>(size_of(side.kv()));
  const double dense_layer = tokens * token_bytes * config.kv_heads;
  if (plan == nullptr || (plan->graph.selection() == kNoNode && plan->variants.empty())) return dense_layer * config.layers;
  const EngineStats stats = side.stats();
  const double share =
      stats.pages_available > 0 ? static_cast<double>(stats.pages_attended) / static_cast<double>(stats.pages_available) : 1;
  const double pages = tokens / setup.batch / plan->layout.page;
  double bytes = 0;
  for (int layer = 0; layer < config.layers; ++layer) {
    const Plan* const program = plan->program_of(layer, config.layers);
    bytes += dense_layer * (program == nullptr ? 1 : share);
    if (program == nullptr) continue;
    double fields = 0;
    for (const PlanStep& step : program->index) fields += traffic_of_step(*program, step, pages).fields;
    bytes += setup.batch * config.kv_heads * fields;
  }
  return bytes;
}

/// One of the two that are compared, and what was measured of it.
struct Measured {
  const Plan* plan;  // null: dense
  ServeSide side;
  std::vector<double> turns = {};
  size_t passes = 0;  // that turns took

  std::string flow() const { return plan != nullptr ? plan->graph.name : "dense"; }
  std::string name() const { return flow() + " decode"; }
};

BenchRow decode_row(const ServeSetup& setup, const Measured& measured) {
  const ServeSide& side = measured.side;
  const auto weights = static_cast<double>(setup.model->step_weight_bytes());
  const double steps = static_cast<double>(measured.turns.size()) * ServeSide::kStepsPerTurn;
  const double cache = cache_bytes(setup, measured.plan, side, static_cast<double>(measured.passes));
  BenchRow row;
  row.name = measured.name();
  row.shape = fmt::format("batch {}, tokens {}", setup.batch, setup.tokens);
  row.time_us = median(measured.turns) / ServeSide::kStepsPerTurn * 1e6;
  row.bytes = weights + cache;
  const double tokens_per_s = setup.batch / row.time_us * 1e6;
  row.metrics = {{"tokens_per_s", tokens_per_s}, {"steps", steps}, {"weight_bytes", weights}, {"cache_bytes", cache}};
  row.note = fmt::format(
      "{:.0f} tokens/s, {:.0f} + {:.0f} MiB of weights and cache a step, pool {:.0f} MiB, overhead {:.0f} MiB counted",
      tokens_per_s, weights / kMiB, cache / kMiB, side.pool() / kMiB, static_cast<double>(side.stats().overhead_bytes) / kMiB);
  if (setup.device.info().name == "cpu") row.note += fmt::format(", {:.0f} MiB resident", side.resident_overhead() / kMiB);
  return row;
}

/// Both sides decode in turn, each time in the other order, for `seconds` at least where that is not 0.
void measure(Measured& other, Measured& flow, int turns, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  const auto enough = [&] {
    return seconds > 0 && static_cast<int>(other.turns.size()) >= kLeastPairs && seconds_since(start) >= seconds;
  };
  const size_t other_begin = other.side.tokens(0).size();
  const size_t flow_begin = flow.side.tokens(0).size();
  while (static_cast<int>(other.turns.size()) < turns && !enough()) {
    const bool other_first = other.turns.size() % 2 == 0;
    if (other_first) other.turns.push_back(other.side.turn());
    flow.turns.push_back(flow.side.turn());
    if (!other_first) other.turns.push_back(other.side.turn());
  }
  other.passes = other.side.tokens(0).size() - other_begin;
  flow.passes = flow.side.tokens(0).size() - flow_begin;
}

void profile(StepProfiler& profiler, Measured& measured, BenchReport& report) {
  profiler.add({.name = measured.name(),
                .flow = measured.plan != nullptr ? measured.plan->graph.name : "",
                .step_us = median(measured.turns) / ServeSide::kStepsPerTurn * 1e6,
                .count = kProfiledSteps,
                .run = [&] { measured.side.run(kProfiledSteps); }},
               report);
}

}  // namespace

int steps_to_compare(const BenchOptions& options) {
  return ServeSide::kWarmPasses + most_turns(options) * ServeSide::kPassesPerTurn + 1 + profiled_steps(options);
}

int least_steps_to_compare() { return ServeSide::kWarmPasses + kLeastPairs * ServeSide::kPassesPerTurn + 1; }

void compare_decoding(const BenchOptions& options, const ServeSetup& setup, const Plan& plan, const Plan* other_plan,
                      BenchReport& report) {
  BenchRow prefill_row;
  const std::shared_ptr<const KvSnapshot> snapshot = prefill(setup, prefill_row);
  Measured other{other_plan, ServeSide(setup, other_plan, snapshot)};
  Measured flow{&plan, ServeSide(setup, &plan, snapshot)};
  const int most = (setup.generate - ServeSide::kWarmPasses - 1 - profiled_steps(options)) / ServeSide::kPassesPerTurn;
  const bool steps_given = options.generate > 0 || !options.random_weights.empty();
  measure(other, flow, std::min(most, most_turns(options)), steps_given ? 0 : std::max(2 * options.seconds, 1e-9));

  const EngineStats stats = flow.side.stats();
  const double share =
      stats.pages_available > 0 ? static_cast<double>(stats.pages_attended) / static_cast<double>(stats.pages_available) : 1;
  BenchRow other_row = decode_row(setup, other);
  BenchRow flow_row = decode_row(setup, flow);
  const Ratio ratio = paired_ratio(other.turns, flow.turns);
  flow_row.note += fmt::format(", {:.0f}% of the pages, {:.2f}x {} [{:.2f}, {:.2f}]", 100 * share, ratio.ratio, other.flow(),
                               ratio.low, ratio.high);
  const std::string ratio_of = other_plan == nullptr ? "dense_ratio" : "beside_ratio";
  flow_row.metrics.insert(
      flow_row.metrics.end(),
      {{"pages_share", share}, {ratio_of, ratio.ratio}, {ratio_of + "_low", ratio.low}, {ratio_of + "_high", ratio.high}});
  if (options.profile) {
    StepProfiler profiler(setup.device);
    profile(profiler, other, report);
    profile(profiler, flow, report);
  }
  const auto agrees = setup.own_prompts ? mostly_agrees_alone : agrees_alone;
  other_row.correct = agrees(setup, other_plan, other.side);
  flow_row.correct = agrees(setup, &plan, flow.side);
  prefill_row.correct = other_row.correct;  // which starts from it and is judged by another prefill
  report.rows = {prefill_row, other_row, flow_row};
  for (BenchRow& row : report.rows) row.limit_us = row.bytes / report.copy_tb_per_s / 1e6;
}

}  // namespace sluice
