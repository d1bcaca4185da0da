#include "agents/evaluation/holdout.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <map>
#include <set>

#include "agents/evaluation/judge.h"
#include "agents/tasks/task.h"

namespace sluice::test {
namespace {

Suite shown_suite(const char* name, bool is_mini) {
  Suite suite = load_suite(name);
  if (is_mini) leave_to_mini(suite);
  return suite;
}

int samples_of(const Suite& suite) {
  int samples = 0;
  for (const SuiteStage& stage : suite.stages) {
    for (const SuiteTask& task : stage.tasks) samples += task.is_text() ? 0 : task.samples;
  }
  return samples;
}

struct Asked {
  std::set<std::string> tasks;
  std::set<int> lengths;
};

Asked asked_of(const Suite& suite) {
  Asked asked;
  for (const SuiteStage& stage : suite.stages) {
    for (const SuiteTask& task : stage.tasks) {
      if (!task.is_text()) asked.tasks.insert(task.task);
      if (!task.is_text()) asked.lengths.insert(task.tokens);
    }
  }
  return asked;
}

TEST(Holdout, AsksOtherTasksAndOnlyOtherLengths) {
  for (const char* name : {"quick", "standard", "full", "real"}) {
    for (const bool is_mini : {true, false}) {
      if (is_mini && std::string(name) == "real") continue;
      const Suite shown = shown_suite(name, is_mini);
      const Asked before = asked_of(shown);
      std::set<std::string> kinds;
      for (int seed = 0; seed < 50; ++seed) {
        const Suite suite = holdout_of(shown, Seed::parse(fmt::format("{}", seed)), is_mini);
        ASSERT_EQ(suite.stages.size(), 1U) << name;
        EXPECT_EQ(suite.speed_pairs, 0);
        const std::vector<SuiteTask>& tasks = suite.stages[0].tasks;
        EXPECT_EQ(suite.stages[0].threshold, 0);
        ASSERT_GE(tasks.size(), 3U) << name;
        int unseen = 0;
        std::string kind;
        for (const SuiteTask& task : tasks) {
          unseen += before.tasks.contains(task.task) ? 0 : 1;
          EXPECT_FALSE(before.lengths.contains(task.tokens));
          EXPECT_GE(2 * task.tokens, *before.lengths.rbegin() - 16);
          EXPECT_LE(task.tokens, *before.lengths.rbegin());
          EXPECT_NO_THROW(find_task(task.task));
          EXPECT_TRUE(!is_mini || find_task(task.task).in_mini) << task.task;
          kind += fmt::format("{} {},", task.task, task.tokens);
        }
        EXPECT_EQ(asked_of(suite).tasks.size(), tasks.size()) << "each task once";
        EXPECT_EQ(unseen, 2) << name;
        EXPECT_LE(samples_of(suite), samples_of(shown) / 2);
        EXPECT_GE(samples_of(suite), samples_of(shown) / 2 - 4);
        kinds.insert(kind);
      }
      EXPECT_GT(kinds.size(), 40U) << "seeds ask different ones";
    }
  }
}

TEST(Holdout, FollowsFromTheSeedAlone) {
  const Suite shown = shown_suite("quick", true);
  Suite more = shown;
  multiply_samples(more, 4);
  const Suite one = holdout_of(shown, Seed::parse("a"), true);
  const Suite same = holdout_of(more, Seed::parse("a"), true);
  ASSERT_EQ(one.stages[0].tasks.size(), same.stages[0].tasks.size());
  for (size_t i = 0; i < one.stages[0].tasks.size(); ++i) {
    EXPECT_EQ(one.stages[0].tasks[i].task, same.stages[0].tasks[i].task);
    EXPECT_EQ(one.stages[0].tasks[i].tokens, same.stages[0].tasks[i].tokens);
    EXPECT_NEAR(same.stages[0].tasks[i].samples, 4 * one.stages[0].tasks[i].samples, 4);
  }
}

TEST(Holdout, OfWhatAsksNothingOfItsKindIsEmpty) {
  for (const char* name : {"verify", "reuse"}) {
    EXPECT_TRUE(holdout_of(load_suite(name), Seed::parse("a"), true).stages.empty()) << name;
  }
  EXPECT_TRUE(
      holdout_of(parse_suite(R"([{"task": "text:a.txt", "tokens": 2048}])", "x"), Seed::parse("a"), false).stages.empty());
}

TEST(Holdout, LeavesOutWhatTheModelCannotBeAsked) {
  Judge judge(SLUICE_SOURCE_DIR "/host/models/mini", "cpu", 1, 0, "");
  for (int seed = 0; seed < 20; ++seed) {
    // So short that hardly a task has room for its text.
    Suite shown = parse_suite(R"([{"task": "needle_multiquery", "tokens": 160, "samples": 16, "questions": 2}])", "x");
    judge.prepare(shown);
    Suite suite;
    ASSERT_NO_THROW(suite = judge.holdout(shown, Seed::parse(fmt::format("{}", seed))));
    Suite quick = load_suite("quick");
    judge.prepare(quick);
    ASSERT_NO_THROW(suite = judge.holdout(quick, Seed::parse(fmt::format("{}", seed))));
    EXPECT_EQ(suite.stages.at(0).tasks.size(), 4U);
  }
}

}  // namespace
}  // namespace sluice::test
