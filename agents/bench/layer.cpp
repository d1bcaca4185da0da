// One whole attention layer of a decode step: the time of flows, with all that they need, beside that of dense attention.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agents/bench/bench.h"
#include "agents/bench/budget.h"
#include "agents/bench/device_limits.h"
#include "agents/bench/flow_sources.h"
#include "agents/bench/layer_side.h"
#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/statistics.h"
#include "kernels/device/device_refusal.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kTurnSeconds = 0.03;  // of one side before it is the next one's turn
constexpr size_t kLeastTurns = 7;

struct Case {
  LayerShape shape;
  int budget;  // pages of 16 that the flows of this benchmark select, the first and the last two counted in
};

// Shapes of Qwen3-8B, Qwen3-1.7B, and one long sequence of the former.
constexpr Case kCudaCases[] = {
    {{.sequences = 16, .tokens = 32768, .kv_heads = 8, .group = 4, .dim = 128, .layers = 3, .calls = 36}, 128},
    {{.sequences = 64, .tokens = 8192, .kv_heads = 8, .group = 2, .dim = 128, .layers = 3, .calls = 28}, 64},
    {{.sequences = 1, .tokens = 131072, .kv_heads = 8, .group = 4, .dim = 128, .layers = 4, .calls = 36}, 128},
};
// The heads of the mini model; layers enough to leave the caches of a server.
constexpr Case kCpuCases[] = {
    {{.sequences = 8, .tokens = 8192, .kv_heads = 2, .group = 4, .dim = 64, .layers = 16, .calls = 16}, 64},
    {{.sequences = 1, .tokens = 32768, .kv_heads = 2, .group = 4, .dim = 64, .layers = 24, .calls = 24}, 128},
};

TraceOptions geometry_of(const LayerShape& shape) { return {.head_dim = shape.dim, .group = shape.group}; }

std::vector<FlowGraph> own_flows(const Case& measured) {
  std::vector<FlowGraph> graphs;
  for (const char* source : kBenchedFlows) {
    FlowGraph graph = trace(source, "bench layer", geometry_of(measured.shape));
    const Attributes& selection = graph.nodes[graph.selection()].attributes;
    set_budget(graph, {.k = measured.budget - selection.first - selection.last, .first = {}, .last = {}});
    graphs.push_back(std::move(graph));
  }
  return graphs;
}

std::vector<FlowGraph> given_flow(const FlowScript& script, const LayerShape& shape) {
  FlowGraph graph = script.trace(geometry_of(shape));
  if (!graph.variants.empty())
    throw FlowError(graph.variants.front().where, fmt::format("{}: several programs, for different layers", graph.name),
                    "give a flow of one of them");
  if (graph.selection() == kNoNode)
    throw FlowError(graph.where, fmt::format("{} selects no pages: there is no index stage", graph.name));
  if (!graph.patterns.empty())
    throw FlowError(graph.patterns.where,
                    fmt::format("{} selects under flow.pattern, which bench layer does not show it", graph.name),
                    "use bench serve or sluice eval");
  graph.layers = LayerChoice{};
  return {graph};
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// A side and its times, each of one call, in seconds.
struct Timed {
  LayerSide& side;
  int passes = 1;  // in a turn
  std::vector<double> turns = {};
  std::vector<double> queueing = {};  // by the host
  std::string fault = {};
};

/// Passes queued back to back, and one wait at the end.
double time_turn(Device& device, const LayerShape& shape, Timed& timed) {
  device.synchronize();
  const auto start = Clock::now();
  for (int i = 0; i < timed.passes; ++i) timed.side.queue_pass();
  device.synchronize();
  return seconds_since(start) / timed.passes / shape.calls;
}

/// Queueing one pass while nothing else is queued, so that the host never waits for room.
double time_queueing(Device& device, const LayerShape& shape, Timed& timed) {
  device.synchronize();
  const auto start = Clock::now();
  timed.side.queue_pass();
  const double seconds = seconds_since(start);
  device.synchronize();
  return seconds / shape.calls;
}

/// Sides take turns, each time in the other order.
void time_sides(Device& device, const LayerShape& shape, std::vector<Timed>& sides, double seconds) {
  for (Timed& timed : sides) {
    time_turn(device, shape, timed);  // warms up
    timed.passes = std::max(1, static_cast<int>(std::ceil(kTurnSeconds / (time_turn(device, shape, timed) * shape.calls))));
  }
  const auto start = Clock::now();
  for (size_t turn = 0; turn < kLeastTurns || seconds_since(start) < seconds * static_cast<double>(sides.size()); ++turn) {
    for (size_t i = 0; i < sides.size(); ++i) {
      Timed& timed = sides[turn % 2 == 0 ? i : sides.size() - 1 - i];
      timed.turns.push_back(time_turn(device, shape, timed));
      timed.queueing.push_back(time_queueing(device, shape, timed));
    }
  }
}

BenchRow row_of(const Device& device, const LayerShape& shape, const Timed& timed, const Timed& dense) {
  BenchRow row;
  row.name = timed.side.name();
  if (&timed != &dense) row.name = fmt::format("{}, {:.0f} pages", row.name, timed.side.pages());
  row.shape = shape.text(timed.side.kv());
  row.time_us = median(timed.turns) * 1e6;
  row.bytes = timed.side.bytes();
  row.correct = timed.fault.empty();
  std::vector<std::string> notes;
  if (&timed != &dense) {
    const Ratio ratio = paired_ratio(dense.turns, timed.turns);
    notes.push_back(
        fmt::format("{:.3f} of dense's time: {:.2f}x [{:.2f}, {:.2f}]", 1 / ratio.ratio, ratio.ratio, ratio.low, ratio.high));
  }
  if (device.info().name != "cpu") {  // whose calls are done when they return
    const double host_us = median(timed.queueing) * 1e6;
    notes.push_back(fmt::format("queued by the host in {:.1f} us{}", host_us,
                                host_us < 0.9 * row.time_us ? "" : " (so the host is the limit)"));
  }
  if (!timed.fault.empty()) notes.push_back(timed.fault);
  row.note = fmt::format("{}", fmt::join(notes, ", "));
  return row;
}

void measure(Device& device, const LayerShape& shape, const std::vector<FlowGraph>& flows, bool flows_given,
             const BenchOptions& options, BenchReport& report) {
  std::string refusals;
  std::vector<std::unique_ptr<LayerSide>> sides;
  sides.push_back(std::make_unique<LayerSide>(device, shape, nullptr));
  for (const FlowGraph& flow : flows) {
    try {
      sides.push_back(std::make_unique<LayerSide>(device, shape, &flow));
      if (flow.fields.empty()) continue;
      sides.push_back(std::make_unique<LayerSide>(device, shape, &flow, LayerSide::FieldPlace::kOwnPages));
    } catch (const FlowError& error) {
      if (flows_given) throw;
      refusals += fmt::format("{}{} refused: {}", refusals.empty() ? "" : ", ", flow.name, error.message());
    }
  }
  LayerSide::fill(shape, sides);
  std::vector<Timed> timed;
  for (const auto& side : sides) timed.push_back({.side = *side, .fault = side->fault(shape.layers - 1, 0)});
  time_sides(device, shape, timed, options.seconds);
  for (Timed& one : timed) {
    const std::string later = one.side.fault(0, 5);
    if (one.fault.empty()) one.fault = later;
  }
  for (const Timed& one : timed) report.rows.push_back(row_of(device, shape, one, timed.front()));
  std::string& dense_note = report.rows[report.rows.size() - timed.size()].note;
  if (!refusals.empty()) dense_note += (dense_note.empty() ? "" : ", ") + refusals;
}

}  // namespace

BenchReport run_layer_bench(const BenchOptions& options) {
  const bool cuda = options.device == "cuda";
  std::span<const Case> cases = cuda ? std::span<const Case>(kCudaCases) : kCpuCases;
  require_case(options, cases.size());
  if (options.only > 0) cases = cases.subspan(static_cast<size_t>(options.only) - 1, 1);
  std::optional<FlowScript> script;
  if (!options.flow.empty()) {
    script = read_flow(options.flow);
    // What is wrong with it is said before the work.
    require_device_takes(compile(given_flow(*script, cases[0].shape)[0]).plan, options.device);
  }
  BenchReport report{.name = "layer"};
  const auto device = create_device(options.device, options.threads);
  for (const Case& one : cases) {
    report.copy_tb_per_s = std::max(report.copy_tb_per_s, measure_copy_of(options.device, options.threads));
    measure(*device, one.shape, script ? given_flow(*script, one.shape) : own_flows(one), script.has_value(), options, report);
  }
  set_limits(report);
  return report;
}

}  // namespace sluice
