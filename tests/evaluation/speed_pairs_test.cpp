#include "agents/evaluation/speed_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace sluice {
namespace {

/// A suite of `tasks` tasks that is timed in `pairs` pairs.
Suite suite(int tasks, int pairs) {
  Suite suite;
  suite.stages.emplace_back().tasks.resize(static_cast<size_t>(tasks));
  suite.speed_pairs = pairs;
  return suite;
}

int sum(const std::vector<int>& pairs) { return std::accumulate(pairs.begin(), pairs.end(), 0); }

auto batches_timed(const std::vector<int>& pairs) {
  return std::count_if(pairs.begin(), pairs.end(), [](int of_batch) { return of_batch > 0; });
}

TEST(SpeedPairs, AreSharedByTasksAndInFewBatches) {
  const std::vector<int> pairs = SpeedPairs(suite(3, 16)).of_batches(10, false);
  EXPECT_EQ(pairs.size(), 10U);
  EXPECT_EQ(sum(pairs), 6) << "a third, rounded up";
  EXPECT_EQ(batches_timed(pairs), 4);
  EXPECT_EQ(*std::max_element(pairs.begin(), pairs.end()), 2);
}

TEST(SpeedPairs, AreAtLeastTwoOfATask) { EXPECT_EQ(sum(SpeedPairs(suite(40, 16)).of_batches(10, false)), 2); }

TEST(SpeedPairs, AreInOneBatchThatIsRunForNothingElse) {
  const std::vector<int> pairs = SpeedPairs(suite(1, 16)).of_batches(10, true);
  EXPECT_EQ(sum(pairs), 16);
  EXPECT_EQ(batches_timed(pairs), 1);
}

TEST(SpeedPairs, AreNoMoreBatchesThanThereAre) {
  EXPECT_EQ(SpeedPairs(suite(1, 16)).of_batches(1, false), std::vector<int>{16});
  EXPECT_TRUE(SpeedPairs(suite(1, 16)).of_batches(0, false).empty());
}

TEST(SpeedPairs, AreInBatchesChosenByChance) {
  const Suite timed = suite(1, 4);
  const std::vector<int> first = SpeedPairs(timed).of_batches(1000, false);
  EXPECT_NE(SpeedPairs(timed).of_batches(1000, false), first) << "the same four of a thousand";
}

}  // namespace
}  // namespace sluice
