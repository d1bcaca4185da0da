#include "agents/evaluation/score.h"

#include <algorithm>
#include <cmath>

#include "agents/evaluation/task_scores.h"

namespace sluice {

namespace {

/// How far the outputs of attention on traces are those of dense attention, in (0, 1].
double likeness(const FlowReport& flow) {
  constexpr double kErrorRate = 8;  // an output that is off by an eighth of its length counts 1/e
  // Pages are whole, and windows of a trace as long as no prompt: shares of the same flow differ by so much.
  constexpr double kSlack = 1.1;
  if (!flow.traces || !flow.untimed.empty()) return 0;
  const double like = std::exp(-kErrorRate * flow.traces->scores.error.mean);
  if (!flow.speed) return like;
  return like * std::min(1.0, kSlack * flow.speed->pages_read / flow.traces->pages_read);
}

}  // namespace

std::optional<double> score_of(const FlowReport& flow, const std::string& dialect) {
  constexpr double kTraceWeight = 4;  // the answers of the mini have 1
  const bool is_answerable =
      std::any_of(flow.tasks.begin(), flow.tasks.end(), [](const TaskResult& task) { return task.dense_accuracy > 0; });
  if (!is_answerable) return std::nullopt;
  const std::optional<double> accuracy = mean_accuracy(flow.tasks, 0);
  if (!accuracy || dialect != "mini") return accuracy;
  if (!flow.traces && flow.untraced.empty()) return std::nullopt;
  return (*accuracy + kTraceWeight * likeness(flow)) / (1 + kTraceWeight);
}

}  // namespace sluice
