#include "agents/evaluation/score.h"

#include <cmath>

#include "agents/evaluation/task_scores.h"

namespace sluice {

std::optional<double> score_of(const FlowReport& flow, const std::string& dialect) {
  constexpr double kErrorRate = 8;    // an output that is off by an eighth of its length counts 1/e
  constexpr double kTraceWeight = 4;  // the answers of the mini have 1
  const std::optional<double> accuracy = mean_accuracy(flow.tasks, 0);
  if (!accuracy || dialect != "mini") return accuracy;
  if (!flow.traces && flow.untraced.empty()) return std::nullopt;
  const double likeness = flow.traces ? std::exp(-kErrorRate * flow.traces->scores.error.mean) : 0;
  return (*accuracy + kTraceWeight * likeness) / (1 + kTraceWeight);
}

}  // namespace sluice
