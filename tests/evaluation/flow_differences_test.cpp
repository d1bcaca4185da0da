#include "agents/evaluation/flow_differences.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "agents/evaluation/lengths.h"
#include "scripting/base/error.h"

namespace sluice::test {
namespace {

using Credits = std::vector<std::vector<double>>;

TaskResult result_of(const Credits& credits, const std::string& task = "salad", int tokens = 2048) {
  TaskResult result;
  result.stage = "short";
  result.task = task;
  result.tokens = tokens;
  result.credits = credits;
  result.documents = static_cast<int>(credits.size());
  for (const std::vector<double>& document : credits) {
    Cluster& cluster = result.clusters.emplace_back();
    for (const double credit : document) cluster.credit += credit;
    cluster.samples = static_cast<int>(document.size());
    result.samples += cluster.samples;
  }
  result.dense_clusters = result.gains = result.losses = result.clusters;
  result.accuracy = mean_credit(result.clusters);
  return result;
}

Credits drawn(std::mt19937_64& random, int documents, int questions, double share) {
  std::bernoulli_distribution right(share);
  Credits credits(static_cast<size_t>(documents));
  for (std::vector<double>& document : credits) {
    for (int i = 0; i < questions; ++i) document.push_back(right(random) ? 1 : 0);
  }
  return credits;
}

/// Over all ways to swap the flows, document by document: how often the difference of means would be as large.
double p_by_enumeration(const std::vector<double>& differences) {
  double observed = 0;
  for (const double difference : differences) observed += difference;
  int as_large = 0;
  const int ways = 1 << differences.size();
  for (int way = 0; way < ways; ++way) {
    double sum = 0;
    for (size_t i = 0; i < differences.size(); ++i) sum += (way >> i & 1) != 0 ? differences[i] : -differences[i];
    as_large += std::fabs(sum) >= std::fabs(observed) - 1e-9 ? 1 : 0;
  }
  return static_cast<double>(as_large) / ways;
}

TEST(FlowDifference, HasThePValueOfAllSwaps) {
  std::mt19937_64 random(1);
  for (int draw = 0; draw < 40; ++draw) {
    // 6 and 8 questions: shares of documents differ, as those of tasks of other numbers of samples do.
    const std::vector<TaskResult> flow = {result_of(drawn(random, 5, 6, 0.6)), result_of(drawn(random, 5, 8, 0.7), "trace")};
    const std::vector<TaskResult> other = {result_of(drawn(random, 5, 6, 0.4)), result_of(drawn(random, 5, 8, 0.7), "trace")};
    std::vector<double> differences;
    double mean = 0;
    for (size_t task = 0; task < 2; ++task) {
      for (size_t i = 0; i < 5; ++i) {
        const double apart = flow[task].clusters[i].credit - other[task].clusters[i].credit;
        differences.push_back(apart / flow[task].samples);
        mean += apart / flow[task].samples / 2;
      }
    }
    const std::optional<FlowDifference> found = difference_of(flow, other);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->tasks, 2);
    EXPECT_NEAR(found->difference, mean, 1e-12);
    EXPECT_NEAR(found->p_value, p_by_enumeration(differences), 0.02) << "shares are rounded to a thousandth of the largest";
    EXPECT_LE(found->interval.low, mean);
    EXPECT_GE(found->interval.high, mean);
    const std::optional<FlowDifference> swapped = difference_of(other, flow);
    EXPECT_NEAR(swapped->difference, -mean, 1e-12);
    EXPECT_NEAR(swapped->interval.low, -found->interval.high, 1e-12);
    EXPECT_NEAR(swapped->p_value, found->p_value, 1e-12);
  }
}

TEST(FlowDifference, OfAlikeFlowsIsNone) {
  const std::vector<TaskResult> tasks = {result_of({{1, 0}, {1, 1}, {0, 0}})};
  const std::optional<FlowDifference> found = difference_of(tasks, tasks);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->difference, 0);
  EXPECT_EQ(found->p_value, 1);
  EXPECT_LT(found->interval.low, 0);
  EXPECT_GT(found->interval.high, 0);
}

TEST(FlowDifference, LeavesOutWhatDoesNotCountOrWasNotAskedOfBoth) {
  TaskResult uncounted = result_of({{1}, {1}}, "trace");
  uncounted.counted = false;
  const std::vector<TaskResult> flow = {result_of({{1}, {1}}), uncounted, result_of({{1}, {1}}, "salad", 4096)};
  EXPECT_EQ(difference_of(flow, {result_of({{0}, {1}}), uncounted})->tasks, 1);
  EXPECT_FALSE(difference_of(flow, {result_of({{0}, {1}}, "salad", 8192)}));
  EXPECT_FALSE(difference_of({}, flow));
}

TEST(FlowDifference, RefusesOtherSamples) {
  EXPECT_THROW(difference_of({result_of({{1}, {1}})}, {result_of({{1}})}), InternalError);
  EXPECT_THROW(difference_of({result_of({{1}, {1}})}, {result_of({{1}, {1, 1}})}), InternalError);
}

/// 400 runs of 40 documents of 4 questions, whose truth is known; documents differ in how hard they are.
TEST(FlowDifference, CoversTheTruth) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> between(-0.15, 0.15);
  for (const double better : {0.0, 0.03, 0.1}) {
    int covered = 0;
    int found = 0;
    constexpr int kRuns = 400;
    for (int run = 0; run < kRuns; ++run) {
      std::vector<TaskResult> flow;
      std::vector<TaskResult> other;
      for (const char* task : {"needle", "salad", "trace"}) {
        Credits mine;
        Credits its;
        for (int document = 0; document < 40; ++document) {
          const double share = 0.75 + between(random);
          mine.emplace_back();
          its.emplace_back();
          for (int i = 0; i < 4; ++i) {
            // Both have the same luck with a question, but for the share by which one of them is better, and for a tenth.
            std::uniform_real_distribution<double> luck(0, 1);
            const double of_both = luck(random);
            const bool apart = luck(random) < 0.1;
            mine.back().push_back((apart ? luck(random) : of_both) < share + better ? 1 : 0);
            its.back().push_back((apart ? luck(random) : of_both) < share ? 1 : 0);
          }
        }
        flow.push_back(result_of(mine, task));
        other.push_back(result_of(its, task));
      }
      const FlowDifference difference = difference_of(flow, other).value();
      covered += difference.interval.low <= better && better <= difference.interval.high ? 1 : 0;
      found += difference.p_value < 0.05 ? 1 : 0;
    }
    EXPECT_GE(covered, 0.93 * kRuns) << better;
    EXPECT_LE(covered, 0.985 * kRuns) << better;
    if (better == 0) EXPECT_LE(found, 0.075 * kRuns);
    if (better > 0.02) EXPECT_GE(found, 0.5 * kRuns) << better;
  }
}

FlowReport report_of(const std::string& name, double share) {
  FlowReport flow;
  flow.name = name;
  flow.tasks = {result_of({{share}, {share}})};
  flow.mean = MeanAccuracy{.accuracy = share, .interval = {}, .dense_interval = {}, .difference_interval = {}};
  return flow;
}

TEST(DifferencesBetween, IsOfAllPairsOfFewFlowsAndOfTheBestOfMany) {
  std::vector<FlowReport> flows;
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) flows.push_back(report_of(name, 0.5));
  EXPECT_EQ(differences_between(flows).size(), 15U);
  flows.push_back(report_of("best", 0.75));
  flows.push_back(FlowReport());  // that was asked nothing
  const std::vector<FlowDifference> differences = differences_between(flows);
  ASSERT_EQ(differences.size(), 6U);
  for (const FlowDifference& difference : differences) {
    EXPECT_EQ(difference.flow, "best");
    EXPECT_NEAR(difference.difference, 0.25, 1e-12);
  }
}

TEST(ResultsByLength, AreMeansOfTheirTasks) {
  TaskSpeed speed;
  speed.length = speed.tokens = 4096;
  speed.seconds = {{2}, {1}};  // a single pair: its interval is that of all tasks
  speed.speedup = {2, 1.5, 3};
  const std::vector<LengthResult> lengths = results_by_length({result_of({{1}, {1}}, "salad", 4096), result_of({{1}, {0}}),
                                                               result_of({{0}, {0}}, "trace"), result_of({{1}}, "jsonl:x", 0)},
                                                              {speed});
  ASSERT_EQ(lengths.size(), 2U);
  EXPECT_EQ(lengths[0].tokens, 2048);
  EXPECT_NEAR(lengths[0].mean->accuracy, 0.25, 1e-12);
  EXPECT_FALSE(lengths[0].speed);
  EXPECT_NEAR(lengths[1].mean->accuracy, 1, 1e-12);
  EXPECT_NEAR(lengths[1].speed->speedup.ratio, 2, 1e-12);
  EXPECT_NEAR(lengths[1].speed->speedup.low, 1.5, 1e-12);
}

}  // namespace
}  // namespace sluice::test
