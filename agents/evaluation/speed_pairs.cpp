#include "agents/evaluation/speed_pairs.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sluice {
namespace {

int pairs_of_a_task(const Suite& suite) {
  size_t tasks = 0;
  for (const SuiteStage& stage : suite.stages) {
    tasks += std::count_if(stage.tasks.begin(), stage.tasks.end(), [](const SuiteTask& task) { return task.is_timed; });
  }
  const auto share = (static_cast<size_t>(suite.speed_pairs) + tasks - 1) / std::max<size_t>(1, tasks);
  return static_cast<int>(std::max<size_t>(2, share));
}

}  // namespace

SpeedPairs::SpeedPairs(const Suite& suite) : of_task_(pairs_of_a_task(suite)) {}

std::vector<int> SpeedPairs::of_batches(size_t batches, bool only_times) {
  constexpr size_t kTimedBatches = 4;  // each costs engines of its own
  std::vector<int> pairs(batches, 0);
  if (batches == 0) return pairs;
  const size_t most = only_times ? 1 : kTimedBatches;
  const auto all = static_cast<size_t>(of_task_);
  std::vector<size_t> places(batches);
  std::iota(places.begin(), places.end(), size_t{0});
  const std::vector<size_t> chosen = chance_.distinct(std::move(places), std::min({most, all, batches}));
  for (size_t i = 0; i < all; ++i) ++pairs[chosen[i % chosen.size()]];
  return pairs;
}

}  // namespace sluice
