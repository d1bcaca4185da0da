#include "agents/evaluation/lengths.h"

#include <map>
#include <utility>

#include "agents/evaluation/speed.h"
#include "agents/evaluation/task_scores.h"

namespace sluice {

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
  for (auto& [tokens, of_length] : found) {
    LengthResult& result =
        lengths.emplace_back(LengthResult{.tokens = tokens, .mean = mean_of_tasks(of_length.tasks), .speed = {}});
    if (!of_length.speeds.empty()) result.speed = speed_of(std::move(of_length.speeds));
  }
  return lengths;
}

}  // namespace sluice
