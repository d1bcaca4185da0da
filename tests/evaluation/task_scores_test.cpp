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

TEST(TaskScores, MeansCountTasksAlikeAndLeaveSomeOut) {
  SuiteTask task;
  task.task = "salad";
  const auto scores = [](std::initializer_list<int> right) {
    Scores made;
    for (const int one : right) made.push_back({{.right = one, .parts = 1}});
    return made;
  };
  std::vector<TaskResult> results = {summarise({}, task, scores({1, 0, 1, 0}), scores({1, 1, 1, 0})),
                                     summarise({}, task, scores({1, 1}), scores({1, 0})),
                                     summarise({}, task, scores({0}), scores({1}))};
  results[2].counted = false;
  const std::optional<MeanAccuracy> mean = mean_of_tasks(results);
  ASSERT_TRUE(mean);
  EXPECT_DOUBLE_EQ(mean->accuracy, 0.75);
  EXPECT_EQ(mean->accuracy, mean_accuracy(results, 0));
  EXPECT_DOUBLE_EQ(mean->dense_accuracy, 0.625);
  EXPECT_DOUBLE_EQ(mean->difference, 0.125);
  EXPECT_LT(mean->difference_interval.low, 0);
  EXPECT_GT(mean->difference_interval.high, 0.125);
  EXPECT_LT(mean->interval.low, 0.75);
  // Texts have intervals of their own, and dense attention has none.
  TaskResult text;
  text.accuracy = 0.5;
  text.interval = {0.4, 0.6};
  text.dense_accuracy = 1;
  text.dense_interval = {1, 1};
  text.loss.emplace();
  const std::optional<MeanAccuracy> of_text = mean_of_tasks({text});
  ASSERT_TRUE(of_text);
  EXPECT_DOUBLE_EQ(of_text->interval.low, 0.4);
  EXPECT_DOUBLE_EQ(of_text->difference_interval.high, -0.4);
  EXPECT_EQ(of_text->dense_interval.low, 1);
  results.push_back(text);
  EXPECT_DOUBLE_EQ(mean_of_tasks(results)->accuracy, 2.0 / 3);
  EXPECT_FALSE(mean_of_tasks({}));
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
