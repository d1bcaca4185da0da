#include "agents/evaluation/suite.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "scripting/base/error.h"

namespace sluice::test {
namespace {

std::set<std::string> tasks_of(const Suite& suite) {
  std::set<std::string> names;
  for (const SuiteStage& stage : suite.stages) {
    for (const SuiteTask& task : stage.tasks) names.insert(task.task);
  }
  return names;
}

TEST(LoadSuite, FullAsksEveryTask) {
  EXPECT_EQ(tasks_of(load_suite("full")).size(), 9U);
  EXPECT_EQ(tasks_of(load_suite("quick")).size(), 9U);
}

TEST(LoadSuite, StandardHasFortyDocumentsAGroupOnTheMini) {
  Suite suite = load_suite("standard");
  leave_to_mini(suite);
  std::map<std::string, int> documents;
  std::map<std::string, std::set<int>> lengths;
  for (const SuiteStage& stage : suite.stages) {
    for (const SuiteTask& task : stage.tasks) {
      documents[task.task] += (task.samples + task.questions - 1) / task.questions;
      lengths[task.task].insert(task.tokens);
      EXPECT_TRUE(task.is_timed) << "accuracy and speed are of the same lengths";
    }
  }
  EXPECT_EQ(documents.size(), 3U);
  for (const auto& [task, count] : documents) {
    EXPECT_GE(count, 40) << task;
    EXPECT_EQ(lengths[task], (std::set<int>{2048, 4096})) << task;
  }
}

TEST(LoadSuite, UnknownNameIsRefused) { EXPECT_THROW(load_suite("slow"), InputError); }

TEST(ParseSuite, MakesAStageOfEachEntry) {
  const Suite suite = parse_suite(R"([{"task": "salad", "tokens": 512, "samples": 3, "threshold": 0.9}, {"task": "jsonl:x.jsonl",
                                      "generations": 4, "k": 2}])",
                                  "my.json");
  ASSERT_EQ(suite.stages.size(), 2U);
  EXPECT_EQ(suite.stages[0].name, "salad 512");
  EXPECT_EQ(suite.stages[0].threshold, 0.9);
  EXPECT_EQ(suite.stages[0].tasks[0].samples, 3);
  EXPECT_EQ(suite.stages[1].tasks[0].generations, 4);
  EXPECT_EQ(suite.stages[1].tasks[0].samples, 0) << "all problems";
}

TEST(ParseSuite, NamesTheEntryAtFault) {
  for (const std::string bad :
       {R"({"tokens": 512})", R"({"task": "sald"})", R"({"task": "salad", "tokens": "many"})",
        R"({"task": "salad", "tokens": 1e9})", R"({"task": "salad", "threshold": 2})", R"({"task": "salad", "token": 512})",
        R"({"task": "jsonl:"})", "7", R"({"task": "jsonl:x", "k": 2})", R"({"task": "salad", "samples": 0})",
        R"({"task": "salad", "samples": 99999999999999999999})"}) {
    try {
      parse_suite(R"([{"task": "salad"}, )" + bad + "]", "my.json");
      FAIL() << bad;
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()).rfind("my.json: entry 2: ", 0), 0U) << error.what();
    }
  }
  EXPECT_THROW(parse_suite("[]", "my.json"), InputError);
  EXPECT_THROW(parse_suite("{", "my.json"), InputError);
}

TEST(Changed, KeepsOnlyTheNamedTasksAndAddsMissingOnes) {
  SuiteChanges changes;
  changes.tasks = {"salad", "jsonl:x.jsonl"};
  changes.samples = 5;
  const Suite suite = changed(load_suite("quick"), changes);
  EXPECT_EQ(tasks_of(suite), (std::set<std::string>{"salad", "jsonl:x.jsonl"}));
  for (const SuiteStage& stage : suite.stages) {
    for (const SuiteTask& task : stage.tasks) EXPECT_EQ(task.samples, 5);
  }
}

TEST(Changed, AddsTasksInTheOrderNamed) {
  SuiteChanges changes;
  changes.tasks = {"trace", "salad", "needle_multivalue", "salad"};
  const Suite suite = changed(parse_suite(R"([{"task": "common_words", "tokens": 512, "samples": 3}])", "my.json"), changes);
  ASSERT_EQ(suite.stages.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(suite.stages[i].tasks[0].task, changes.tasks[i]);
    EXPECT_EQ(suite.stages[i].tasks[0].tokens, 512);
    EXPECT_EQ(suite.stages[i].tasks[0].samples, 3);
  }
}

TEST(Changed, ATaskAddedToAProblemSetIsAskedAtLeastOnce) {
  SuiteChanges changes;
  changes.tasks = {"salad"};
  const Suite suite = changed(parse_suite(R"([{"task": "jsonl:x.jsonl"}])", "my.json"), changes);
  EXPECT_EQ(suite.stages.at(0).tasks.at(0).samples, SuiteTask().samples);
}

TEST(Changed, LengthsKeepTheStrictestThreshold) {
  const char* mine = R"([{"task": "salad", "threshold": 0.8}, {"task": "trace", "threshold": 0.9}, {"task": "common_words"}])";
  SuiteChanges changes;
  changes.tokens = {512, 2048};
  const Suite strict = changed(parse_suite(mine, "my.json"), changes);
  EXPECT_EQ(strict.stages.at(0).threshold, 0.9);
  EXPECT_EQ(strict.stages.at(1).threshold, 0.9);
  changes.tasks = {"common_words"};
  EXPECT_EQ(changed(parse_suite(mine, "my.json"), changes).stages.at(0).threshold, 0) << "stages that are left out do not count";
  changes.tasks = {};
  const Suite quick = changed(load_suite("quick"), changes);
  EXPECT_EQ(quick.stages.at(0).threshold, 0.15);
  EXPECT_EQ(quick.stages.at(1).threshold, 0.15);
}

TEST(Changed, TheLongestLengthAloneDecidesWhereTheLastStageDid) {
  SuiteChanges changes;
  changes.tokens = {2048, 512};
  const Suite real = changed(load_suite("real"), changes);
  EXPECT_EQ(real.stages.at(0).threshold, 0);
  EXPECT_EQ(real.stages.at(1).threshold, load_suite("real").stages.back().threshold);
  EXPECT_GT(real.stages.at(1).threshold, 0);
  changes.tasks = {"text", "jsonl:x.jsonl"};
  const Suite with_problems = changed(load_suite("real"), changes);
  EXPECT_EQ(with_problems.stages.at(0).threshold, 0);
  EXPECT_EQ(with_problems.stages.at(1).threshold, real.stages.at(1).threshold);
}

TEST(Changed, RunsEveryTaskAtTheNamedLengths) {
  SuiteChanges changes;
  changes.tokens = {2048, 512};
  const Suite suite = changed(load_suite("full"), changes);
  ASSERT_EQ(suite.stages.size(), 2U);
  EXPECT_EQ(suite.stages[0].tasks.size(), 9U);
  EXPECT_EQ(suite.stages[0].tasks[0].tokens, 512);
  EXPECT_EQ(suite.stages[1].tasks[0].tokens, 2048);
  changes.tokens = {1};
  EXPECT_THROW(changed(load_suite("full"), changes), InputError);
}

TEST(Changed, RefusesUnknownTasksAndMorePassesThanGenerations) {
  SuiteChanges changes;
  changes.tasks = {"sald"};
  EXPECT_THROW(changed(load_suite("quick"), changes), InputError);
  changes.tasks = {"jsonl:x.jsonl"};
  changes.k = 4;
  EXPECT_THROW(changed(load_suite("quick"), changes), InputError);
  changes.generations = 4;
  EXPECT_NO_THROW(changed(load_suite("quick"), changes));
}

TEST(Changed, RefusesOptionsOfProblemSetsWhereThereIsNone) {
  for (const auto option : {&SuiteChanges::generations, &SuiteChanges::k, &SuiteChanges::max_tokens}) {
    SuiteChanges changes;
    changes.*option = 1;
    EXPECT_THROW(changed(load_suite("quick"), changes), InputError);
    changes.tasks = {"salad", "jsonl:x.jsonl"};
    EXPECT_NO_THROW(changed(load_suite("quick"), changes));
  }
}

}  // namespace
}  // namespace sluice::test
