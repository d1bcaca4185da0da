#include "agents/evaluation/task_scores.h"

#include <gtest/gtest.h>

namespace sluice::test {
namespace {

TEST(TaskScores, HaveCreditByParts) {
  SuiteTask task;
  task.task = "salad";
  const Scores dense = {{{.right = 4, .parts = 4}, {.right = 2, .parts = 4}}, {{.right = 3, .parts = 3}}};
  const Scores flow = {{{.right = 3, .parts = 4}, {.right = 3, .parts = 4}}, {{.right = 1, .parts = 3}}};
  const TaskResult result = summarise({}, task, flow, dense);
  EXPECT_DOUBLE_EQ(result.accuracy, (0.75 + 0.75 + 1.0 / 3) / 3);
  EXPECT_DOUBLE_EQ(result.dense_accuracy, (1 + 0.5 + 1) / 3.0);
  EXPECT_DOUBLE_EQ(result.whole, 0);
  EXPECT_DOUBLE_EQ(result.dense_whole, 2.0 / 3);
  EXPECT_EQ(result.lost, 2);
  EXPECT_EQ(result.gained, 1);
  EXPECT_DOUBLE_EQ(result.p_value, 1) << "the first document is as good, the second alone shows nothing";
}

TEST(TaskScores, PassAtKCountsWholeAnswers) {
  SuiteTask task;
  task.task = "jsonl:problems";
  task.k = 1;
  const Scores scores = {{{.right = 1, .parts = 2}, {.right = 2, .parts = 2}}};
  EXPECT_DOUBLE_EQ(summarise({}, task, scores, scores).pass_at_k, 0.5);
}

}  // namespace
}  // namespace sluice::test
