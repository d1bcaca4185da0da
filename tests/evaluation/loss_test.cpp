// What becomes of losses: differences, intervals, members of reports, means.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "agents/evaluation/statistics.h"
#include "agents/evaluation/task_scores.h"

namespace sluice {
namespace {

SuiteTask text_task(const std::string& name) {
  SuiteTask task;
  task.task = name;
  task.tokens = 2048;
  return task;
}

Scores scores_of(const std::vector<double>& losses) {
  Scores scores;
  for (const double loss : losses) scores.push_back({{.loss = loss}});
  return scores;
}

TEST(Loss, IsComparedWindowByWindow) {
  const SuiteStage stage{"texts", 0, {}};
  const Scores dense = scores_of({1, 2, 3, 2});
  const TaskResult result = summarise(stage, text_task("text:book.txt"), scores_of({1.1, 2.3, 3, 2.2}), dense);
  ASSERT_TRUE(result.loss);
  EXPECT_EQ(result.group, "text:book.txt");
  EXPECT_EQ(result.samples, 4);
  EXPECT_NEAR(result.loss->dense_loss, 2, 1e-12);
  EXPECT_NEAR(result.loss->difference, 0.15, 1e-12);
  EXPECT_NEAR(result.loss->kept(), std::exp(-0.15), 1e-12);
  EXPECT_NEAR(result.accuracy, std::exp(-0.15), 1e-12);
  ASSERT_TRUE(result.loss->interval);
  EXPECT_LT(result.loss->interval->low, 0.15);
  EXPECT_GT(result.loss->interval->high, 0.15);
  EXPECT_DOUBLE_EQ(result.interval.low, std::exp(-result.loss->interval->high));
  EXPECT_EQ(result.dense_accuracy, 1);
  EXPECT_EQ(summarise(stage, text_task("copy"), scores_of({0.5}), scores_of({0.7})).accuracy, 1) << "no share is above 1";
}

TEST(Loss, StandsInReports) {
  Report report;
  const SuiteStage stage{"texts", 0, {}};
  const Scores dense = scores_of({1, 2});
  report.dense.push_back(summarise(stage, text_task("copy"), dense, dense));
  FlowReport& flow = report.flows.emplace_back();
  flow.name = "quest";
  flow.tasks.push_back(summarise(stage, text_task("copy"), scores_of({1.25, 2.25}), dense));
  flow.tasks.push_back(summarise(stage, text_task("text"), scores_of({3}), scores_of({2.5})));
  flow.tasks.back().counted = false;
  FlowReport& full = report.flows.emplace_back();
  full.name = "full";
  full.tasks.push_back(summarise(stage, text_task("copy"), dense, dense));
  const nlohmann::json json = nlohmann::json::parse(to_json(report));
  const auto& copy = json["flows"][0]["tasks"][0];
  EXPECT_EQ(copy["loss"], 1.75);
  EXPECT_EQ(copy["dense_loss"], 1.5);
  EXPECT_EQ(copy["loss_difference"], 0.25);
  EXPECT_EQ(copy["loss_low"], 0.25);
  EXPECT_FALSE(copy.contains("p_value"));
  EXPECT_FALSE(copy.contains("counted"));
  const auto& text = json["flows"][0]["tasks"][1];
  EXPECT_TRUE(text["loss_low"].is_null()) << "one window";
  EXPECT_EQ(text["counted"], false);
  const std::string table = to_table(report, true);
  EXPECT_NE(table.find("+0.250 +0.250–+0.250"), std::string::npos) << table;
  EXPECT_NE(table.find("(dense)  1.500"), std::string::npos) << table;
  EXPECT_NE(table.find("full     +0.000 +0.000–+0.000"), std::string::npos) << "as a flow that loses nothing\n" << table;
}

TEST(Loss, MeansLeaveOutWhatDoesNotCount) {
  std::vector<TaskResult> results(3);
  results[0].accuracy = 0.2;
  results[1].accuracy = 0.6;
  results[2].accuracy = 1;
  results[1].counted = false;
  EXPECT_DOUBLE_EQ(mean_accuracy(results, 0).value(), 0.6);
  EXPECT_FALSE(mean_accuracy({results[1]}, 0));
}

/// 95 % intervals of means hold the true mean about that often, also of few values.
TEST(Bootstrap, CoversTheMean) {
  std::mt19937 random(7);
  std::gamma_distribution<double> skewed(4, 0.25);  // mean 1
  for (const size_t count : {4U, 8U, 64U}) {
    int covered = 0;
    constexpr int kTrials = 400;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<double> values(count);
      for (double& value : values) value = skewed(random);
      const Interval interval = bootstrap_mean(values);
      covered += interval.low <= 1 && interval.high >= 1;
    }
    EXPECT_GT(covered, kTrials * 0.9) << count;
    EXPECT_LT(covered, kTrials * 0.99) << count;
  }
  const std::vector<double> values{1, 2, 3, 4, 5};
  EXPECT_EQ(bootstrap_mean(values).low, bootstrap_mean(values).low);
}

}  // namespace
}  // namespace sluice
