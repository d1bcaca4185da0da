#include "agents/evaluation/lengths.h"

#include <cmath>
#include <map>

#include "agents/evaluation/statistics.h"
#include "agents/evaluation/task_scores.h"

namespace sluice {
namespace {

/// Geometric means of tasks, at least one; their intervals are independent.
LengthResult::Speed speed_of_length(const std::vector<TaskSpeed>& tasks) {
  const double each = 1 / static_cast<double>(tasks.size());
  std::vector<Estimate> ratios;
  double limits = 0;
  LengthResult::Speed speed{.speedup = {}, .limit = 1, .pages_read = 0};
  for (const TaskSpeed& task : tasks) {
    const Ratio& ratio = task.speedup;
    ratios.push_back({std::log(ratio.ratio), {std::log(ratio.low), std::log(ratio.high)}, each});
    limits += each * std::log(task.limit);
    speed.pages_read += each * task.pages_read;
  }
  const Estimate mean = weighted_sum(ratios);
  speed.speedup = {std::exp(mean.value), std::exp(mean.interval.low), std::exp(mean.interval.high)};
  speed.limit = std::exp(limits);
  return speed;
}

}  // namespace

std::vector<LengthResult> results_by_length(const std::vector<TaskResult>& tasks, const std::vector<TaskSpeed>& speeds) {
  struct OfLength {
    std::vector<TaskResult> tasks;
    std::vector<TaskSpeed> speeds;
  };
  std::map<int, OfLength> found;
  for (const TaskResult& task : tasks) {
    if (task.tokens > 0) found[task.tokens].tasks.push_back(task);
  }
  for (const TaskSpeed& speed : speeds) {
    if (speed.length > 0) found[speed.length].speeds.push_back(speed);
  }
  std::vector<LengthResult> lengths;
  for (const auto& [tokens, of_length] : found) {
    LengthResult& result =
        lengths.emplace_back(LengthResult{.tokens = tokens, .mean = mean_of_tasks(of_length.tasks), .speed = {}});
    if (!of_length.speeds.empty()) result.speed = speed_of_length(of_length.speeds);
  }
  return lengths;
}

}  // namespace sluice
