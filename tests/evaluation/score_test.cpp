#include "agents/evaluation/score.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice {
namespace {

/// Of two tasks that count, and one that does not.
FlowReport flow_of(double first, double second) {
  FlowReport flow;
  for (const double accuracy : {first, second, 0.125}) {
    flow.tasks.emplace_back().accuracy = accuracy;
    flow.tasks.back().dense_accuracy = 1;
  }
  flow.tasks.back().counted = false;
  return flow;
}

double value_of(const FlowReport& flow, const std::string& dialect) { return score_of(flow, dialect).value().value; }

TEST(Score, IsNoneWhereDenseAttentionAnswersNothing) {
  FlowReport flow = flow_of(0, 0);
  flow.traces.emplace().scores.error.mean = 0;
  EXPECT_TRUE(score_of(flow, "mini"));
  for (TaskResult& task : flow.tasks) task.dense_accuracy = 0;
  EXPECT_FALSE(score_of(flow, "mini"));
}

TEST(Score, OfARealModelIsItsAccuracy) {
  FlowReport flow = flow_of(0.5, 1);
  EXPECT_EQ(value_of(flow, "english"), 0.75);
  flow.traces.emplace().scores.error.mean = 1;
  EXPECT_EQ(value_of(flow, "english"), 0.75) << "recorded attention says nothing that its own answers do not";
}

TEST(Score, OfTheMiniIsMostlyTheErrorOnTraces) {
  FlowReport flow = flow_of(0.5, 1);
  flow.traces.emplace().scores.error.mean = 0.125;
  EXPECT_DOUBLE_EQ(value_of(flow, "mini"), (0.75 + 4 * std::exp(-1.0)) / 5);
  flow.traces->scores.error.mean = 0;
  EXPECT_DOUBLE_EQ(value_of(flow, "mini"), 4.75 / 5);
}

TEST(Score, OfAFlowThatReadsMoreOnTracesThanWhereItIsTimedIsLess) {
  FlowReport flow = flow_of(1, 1);
  flow.traces.emplace().pages_read = 0.125;
  flow.speed.emplace().pages_read = 0.125;
  EXPECT_EQ(value_of(flow, "mini"), 1);
  flow.speed->pages_read = 0.25;
  EXPECT_EQ(value_of(flow, "mini"), 1) << "fewer are no merit";
  flow.traces->pages_read = 1;
  EXPECT_DOUBLE_EQ(value_of(flow, "mini"), (1 + 4 * 1.1 * 0.25) / 5);
  flow.speed.reset();
  EXPECT_EQ(value_of(flow, "mini"), 1) << "speed was not asked for";
  flow.untimed = "no memory";
  EXPECT_DOUBLE_EQ(value_of(flow, "mini"), 0.2);
}

TEST(Score, CountsNothingForTracesOnWhichAFlowDoesNotRun) {
  FlowReport flow = flow_of(0.5, 1);
  flow.untraced = "of another shape";
  EXPECT_DOUBLE_EQ(value_of(flow, "mini"), 0.15);
}

TEST(Score, HasTheIntervalOfWhatItIsMadeOf) {
  FlowReport flow = flow_of(0.5, 1);
  TraceScore& error = flow.traces.emplace().scores.error;
  error = {0.125, Interval{0.0625, 0.25}};
  EXPECT_FALSE(score_of(flow, "mini")->interval) << "the accuracy has none";
  flow.mean = MeanAccuracy{0.75, {0.5, 0.875}, 1, {1, 1}, -0.25, {-0.5, -0.125}};
  const FlowScore score = *score_of(flow, "mini");
  ASSERT_TRUE(score.interval);
  const double below = std::hypot((0.75 - 0.5) / 5, 4 * (std::exp(-1) - std::exp(-2)) / 5);
  const double above = std::hypot((0.875 - 0.75) / 5, 4 * (std::exp(-0.5) - std::exp(-1)) / 5);
  EXPECT_DOUBLE_EQ(score.interval->low, score.value - below);
  EXPECT_DOUBLE_EQ(score.interval->high, score.value + above);
  EXPECT_EQ(score_of(flow, "english")->interval->low, 0.5);
  error.interval.reset();
  EXPECT_FALSE(score_of(flow, "mini")->interval) << "the error has none";
}

TEST(Score, IsMissingWhereNothingWasJudged) {
  EXPECT_FALSE(score_of(flow_of(0.5, 1), "mini")) << "no traces";
  FlowReport flow;
  flow.traces.emplace();
  EXPECT_FALSE(score_of(flow, "mini")) << "no answers";
  EXPECT_FALSE(score_of(flow, "english"));
}

}  // namespace
}  // namespace sluice
