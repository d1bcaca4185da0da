#include "agents/evaluation/score.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "agents/evaluation/task_scores.h"

namespace sluice {

namespace {

/// How far the outputs of attention on traces are those of dense attention, in (0, 1].
FlowScore likeness(const FlowReport& flow) {
  constexpr double kErrorRate = 8;  // an output that is off by an eighth of its length counts 1/e
  // Pages are whole, and windows of a trace as long as no prompt: shares of the same flow differ by so much.
  constexpr double kSlack = 1.1;
  if (!flow.traces || !flow.untimed.empty()) return {0, Interval{0, 0}};
  const TraceScore& error = flow.traces->scores.error;
  const double share = flow.speed ? std::min(1.0, kSlack * flow.speed->pages_read / flow.traces->pages_read) : 1;
  const auto like = [share](double off) { return share * std::exp(-kErrorRate * off); };
  FlowScore score{like(error.mean), {}};
  if (error.interval) score.interval = {like(error.interval->high), like(error.interval->low)};
  return score;
}

}  // namespace

std::optional<FlowScore> accuracy_score(const FlowReport& flow) {
  const std::optional<double> accuracy = mean_accuracy(flow.tasks, 0);
  if (!accuracy) return std::nullopt;
  return FlowScore{*accuracy, flow.mean ? std::optional(flow.mean->interval) : std::nullopt};
}

std::optional<FlowScore> score_of(const FlowReport& flow, const std::string& dialect) {
  constexpr double kTraceWeight = 4;  // the answers of the mini have 1
  const bool is_answerable =
      std::any_of(flow.tasks.begin(), flow.tasks.end(), [](const TaskResult& task) { return task.dense_accuracy > 0; });
  if (!is_answerable) return std::nullopt;
  const std::optional<FlowScore> accuracy = accuracy_score(flow);
  if (!accuracy || dialect != "mini") return accuracy;
  if (!flow.traces && flow.untraced.empty()) return std::nullopt;
  const FlowScore like = likeness(flow);
  FlowScore score{(accuracy->value + kTraceWeight * like.value) / (1 + kTraceWeight), {}};
  if (accuracy->interval && like.interval) {
    const std::array<Estimate, 2> parts = {Estimate{accuracy->value, *accuracy->interval, 1 / (1 + kTraceWeight)},
                                           Estimate{like.value, *like.interval, kTraceWeight / (1 + kTraceWeight)}};
    score.interval = weighted_sum(parts).interval;
  }
  return score;
}

}  // namespace sluice
