#include "agents/evaluation/cascade.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "agents/evaluation/caching_runner.h"
#include "agents/evaluation/load_source.h"
#include "agents/evaluation/memory_limit.h"
#include "agents/evaluation/speed.h"
#include "tests/evaluation/fake_runner.h"

namespace sluice::test {
namespace {

Report with_seconds(Report report, double seconds) {
  report.seconds = seconds;
  for (FlowReport& flow : report.flows) {
    for (StageTime& stage : flow.stages) stage.seconds = seconds;
  }
  return report;
}

TEST(Cascade, TellsHowLongEachStageTook) {
  FakeRunner runner;
  const Report report = run(runner, {"right", "wrong", "refused", "inexact", "narrow"});
  const auto names = [&](size_t flow) {
    std::vector<std::string> list;
    for (const StageTime& stage : report.flows.at(flow).stages) {
      list.push_back(stage.name);
      EXPECT_GE(stage.seconds, 0);
      EXPECT_LE(stage.seconds, report.seconds);
    }
    return list;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(0), (Names{"verify", "numerical", "needle_multiquery 256", "salad 300", "speed"}));
  EXPECT_EQ(names(1), (Names{"verify", "numerical", "needle_multiquery 256", "speed"})) << "its speed is measured all the same";
  EXPECT_EQ(names(2), Names{"verify"});
  EXPECT_EQ(names(3), (Names{"verify", "numerical"}));
  EXPECT_EQ(names(4), names(0));
}

TEST(Cascade, GivesEachFlowItsStatus) {
  FakeRunner runner;
  const Report report = run(runner, {"right", "wrong", "half", "throws", "refused", "inexact"});
  ASSERT_EQ(report.flows.size(), 6U);
  EXPECT_EQ(report.flows[0].status, FlowStatus::kPassed);
  EXPECT_EQ(report.flows[1].status, FlowStatus::kBelowThreshold);
  EXPECT_EQ(report.flows[2].status, FlowStatus::kBelowThreshold);
  EXPECT_EQ(report.flows[3].status, FlowStatus::kRuntimeError);
  EXPECT_EQ(report.flows[3].message, "out of something");
  EXPECT_EQ(report.flows[4].status, FlowStatus::kRejectedStatic);
  EXPECT_EQ(report.flows[4].message, "refused.lua:3: unknown operator");
  EXPECT_EQ(report.flows[4].hint, "try max");
  EXPECT_EQ(report.flows[5].status, FlowStatus::kIncorrectNumerical);
  EXPECT_EQ(report.flows[5].message, "scores differ");
}

TEST(Cascade, MemoryThatRunsOutIsTheFlowsEnd) {
  FakeRunner runner;
  const FlowReport flow = run(runner, {"large"}).flows[0];
  EXPECT_EQ(flow.status, FlowStatus::kRuntimeError);
  EXPECT_EQ(flow.message, memory_ran_out());
}

TEST(Cascade, WhatTheMachineLacksSaysNothingAboutAFlow) {
  for (const char* step : {"prepare", "check", "prefill", "decode", "measure"}) {
    FakeRunner runner;
    runner.lacking = step;
    EXPECT_THROW(run(runner, {"right"}), std::system_error) << step;
  }
}

TEST(Cascade, LaterStagesAreNotRunBelowTheThreshold) {
  FakeRunner runner;
  const Report report = run(runner, {"right", "half"});
  EXPECT_EQ(report.flows[0].tasks.size(), 2U);
  EXPECT_EQ(report.flows[1].tasks.size(), 1U);
  EXPECT_DOUBLE_EQ(report.flows[1].tasks[0].accuracy, 0.5);
  EXPECT_EQ(report.flows[1].stage, "needle_multiquery 256");
}

TEST(Cascade, MeasuresTheSpeedOfEveryFlowThatRuns) {
  FakeRunner runner;
  run(runner, {"right", "wrong", "throws", "refused", "inexact"});
  EXPECT_EQ(runner.measured, (std::map<std::string, int>{{"right", 3}, {"wrong", 3}}))
      << "in every task, judged in it or not, both batches of the first";
}

// Were it always the first batch, a flow could be fast for the first problems of a set alone, or for what a server's seed begins
// with.
TEST(Cascade, TimesBatchesChosenByChance) {
  const Suite suite = parse_suite(R"([{"task": "needle_multiquery", "tokens": 256, "samples": 256, "questions": 4}])", "long");
  const auto timed = [&] {
    FakeRunner runner;
    run(runner, {"right"}, "the same", suite);
    return runner.timed;
  };
  const std::vector<std::string> once = timed();
  const std::vector<std::string> again = timed();
  EXPECT_EQ(once.size(), 4U) << "of 64";
  EXPECT_EQ(std::set<std::string>(once.begin(), once.end()).size(), once.size());
  EXPECT_NE(once, again) << "the seed of the questions, which is the same, says nothing of it";
}

TEST(Cascade, BatchesOfATaskCountByTheirPairs) {
  TaskSpeed few;
  few.seconds = {{2}, {1}};
  few.generated = 8;
  few.pages_read = 0.1;
  few.limit = 10;
  few.mass = {0.5, 1};
  few.strayed = 1;
  few.compared = 4;
  TaskSpeed many = few;
  many.seconds = {{4, 4, 4}, {4, 4, 4}};
  many.generated = 24;
  many.pages_read = 1;
  many.limit = 1;
  many.mass = {1, 1};
  many.strayed = 0;
  const TaskSpeed all = united({few, many});
  EXPECT_EQ(all.seconds.slow, (std::vector<double>{2, 4, 4, 4}));
  EXPECT_EQ(all.seconds.fast, (std::vector<double>{1, 4, 4, 4}));
  EXPECT_EQ(all.generated, 32);
  EXPECT_DOUBLE_EQ(all.pages_read, 0.775);
  EXPECT_DOUBLE_EQ(all.limit, std::pow(10, 0.25));
  EXPECT_EQ(all.mass, (std::vector<double>{0.875, 1}));
  EXPECT_EQ(all.strayed, 1);
  EXPECT_EQ(all.compared, 8);
}

TEST(Cascade, RefusesSpeedsThatCannotBe) {
  FakeRunner runner;
  const FlowReport flow = run(runner, {"hasty"}).flows[0];
  EXPECT_EQ(flow.status, FlowStatus::kPassed);
  EXPECT_FALSE(flow.speed.has_value());
  EXPECT_NE(flow.message.find("9.00x was measured"), std::string::npos) << flow.message;
}

TEST(Cascade, RefusesAFlowThatAnswersOtherwiseWhereTheClockLooks) {
  FakeRunner runner;
  const FlowReport flow = run(runner, {"strays"}).flows[0];
  EXPECT_EQ(flow.status, FlowStatus::kIncorrectNumerical);
  EXPECT_EQ(flow.stage, "speed");
  EXPECT_FALSE(flow.speed.has_value());
  EXPECT_NE(flow.message.find("what is timed must be what is scored"), std::string::npos) << flow.message;
}

TEST(Cascade, EveryTaskCountsAlikeInTheSpeed) {
  TaskSpeed once;
  once.seconds = {{2, 2}, {1, 1}};
  once.generated = 10;
  once.pages_read = 0.25;
  once.limit = 4;
  TaskSpeed often = once;
  often.seconds = {std::vector<double>(20, 80), std::vector<double>(20, 10)};
  often.pages_read = 0.75;
  const SpeedResult speed = speed_of({once, often});
  EXPECT_NEAR(speed.speedup.ratio, 4, 1e-9) << "the geometric mean of 2 and 8";
  EXPECT_DOUBLE_EQ(speed.pages_read, 0.5);
  EXPECT_EQ(speed.pairs, 22);
  EXPECT_NEAR(speed.tasks.at(1).speedup.ratio, 8, 1e-9);
}

TEST(Cascade, PrefillsOnceForAllFlows) {
  FakeRunner one;
  run(one, {"right"});
  FakeRunner many;
  run(many, {"right", "right", "right"});
  EXPECT_EQ(one.prefills, many.prefills);
  EXPECT_EQ(many.decodes["right"], 3 * many.decodes["dense"]);
}

TEST(Cascade, KeepsWhatDenseAttentionDid) {
  FakeRunner fake;
  CachingRunner runner(fake, 1000);
  for (const std::string flow : {"right", "half", "wrong"}) {
    FakeRunner alone;
    const Report wanted = run(alone, {flow});
    const Report got = run(runner, {flow});
    EXPECT_EQ(to_json(with_seconds(got, 0)), to_json(with_seconds(wanted, 0)));
  }
  EXPECT_EQ(fake.decodes["dense"], 3);  // two documents of one task, one of the other; not again for later flows
  EXPECT_EQ(fake.prefills, 3);
  EXPECT_EQ(runner.bytes(), 8U + 4U);
  run(runner, {"right"}, "another seed");
  EXPECT_EQ(fake.decodes["dense"], 6);
}

TEST(Cascade, KeepsNoMoreThanItMay) {
  FakeRunner fake;
  CachingRunner runner(fake, 9);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(runner, {"right"}).flows[0].status, FlowStatus::kPassed);
  EXPECT_LE(runner.bytes(), 9U);
  EXPECT_GT(fake.prefills, 8);
  fake.failing_prefill = fake.prefills + 1;
  EXPECT_FALSE(run(runner, {"right"}, "fresh").errors.empty());
  EXPECT_EQ(run(runner, {"right"}, "fresh").flows[0].status, FlowStatus::kPassed);
}

TEST(Cascade, ASuiteWithoutTasksOnlyVerifies) {
  FakeRunner runner;
  const Report report = run(runner, {"wrong", "refused", "inexact"}, "s", load_suite("verify"));
  EXPECT_EQ(report.flows[0].status, FlowStatus::kPassed);
  EXPECT_EQ(report.flows[0].message, "");
  EXPECT_FALSE(report.flows[0].speed);
  EXPECT_EQ(report.flows[1].status, FlowStatus::kRejectedStatic);
  EXPECT_EQ(report.flows[2].status, FlowStatus::kIncorrectNumerical);
  EXPECT_EQ(runner.prefills, 0);
}

TEST(Cascade, StopsWhenNoFlowIsLeft) {
  FakeRunner runner;
  const Report report = run(runner, {"wrong"});
  EXPECT_EQ(report.dense.size(), 1U) << "the second stage has no one to judge";
}

TEST(Cascade, WithoutFlowsMeasuresDenseAlone) {
  FakeRunner runner;
  const Report report = run(runner, {});
  ASSERT_EQ(report.dense.size(), 2U);
  EXPECT_EQ(report.dense[0].accuracy, 1);
  EXPECT_TRUE(runner.measured.empty());
}

TEST(Cascade, KeepsQuestionsAndAnswersWhereItIsAskedTo) {
  FakeRunner runner;
  Suite suite = parse_suite(R"([{"task": "salad", "tokens": 300, "samples": 3}])", "one");
  EXPECT_TRUE(run(runner, {"half"}, "s", suite).questions.empty());
  suite.keeps_answers = true;
  const Report report = run(runner, {"half", "refused"}, "s", suite);
  ASSERT_EQ(report.questions.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    const AskedQuestion& question = report.questions[i];
    EXPECT_EQ(question.tokens, 300);
    ASSERT_EQ(question.said.size(), 2U) << "a refused flow says nothing";
    EXPECT_EQ(question.said[0].by, "");
    EXPECT_EQ(question.said[0].text, question.answer);
    EXPECT_EQ(question.said[0].credit, 1);
    EXPECT_EQ(question.said[1].by, "half");
    EXPECT_EQ(question.said[1].credit, i % 2 == 0 ? 1 : 0);
  }
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["questions"][1]["prompt"], report.questions[1].prompt);
  EXPECT_TRUE(json["questions"][1]["said"][0]["by"].is_null());
  EXPECT_EQ(json["questions"][1]["said"][1]["text"], "nothing");
}

TEST(Cascade, ComparesPairsWithDense) {
  FakeRunner runner;
  const Report report = run(runner, {"half"});
  const TaskResult& result = report.flows[0].tasks[0];
  EXPECT_EQ(result.samples, 8);
  EXPECT_EQ(result.documents, 2);
  EXPECT_EQ(result.lost, 4);
  EXPECT_EQ(result.gained, 0);
  EXPECT_DOUBLE_EQ(result.p_value, 0.5) << "two documents could both have gone the other way by chance";
  EXPECT_DOUBLE_EQ(result.dense_accuracy, 1);
}

TEST(Cascade, JudgesStagesOfOneNameByTheirOwnResults) {
  FakeRunner runner;
  const Suite suite = parse_suite(R"([{"task": "salad", "tokens": 300, "samples": 4, "threshold": 0.4},
                                      {"task": "salad", "tokens": 300, "samples": 4, "threshold": 0.6}])",
                                  "twice");
  const Report report = run(runner, {"half"}, "s", suite);
  EXPECT_EQ(report.flows[0].tasks.size(), 2U);
  EXPECT_EQ(report.flows[0].status, FlowStatus::kBelowThreshold);
}

TEST(Cascade, AFlowThatJustMeetsTheThresholdGoesOn) {
  FakeRunner runner;
  SuiteTask task;
  task.task = "needle_multiquery";
  task.samples = task.questions = 10;
  Suite suite;
  suite.stages = {{"three", 0.7, {task, task, task}}};  // (0.7 + 0.7 + 0.7) / 3 is less than 0.7 in binary
  const Report report = run(runner, {"seven"}, "s", suite);
  ASSERT_DOUBLE_EQ(report.flows[0].tasks[0].accuracy, 0.7);
  EXPECT_EQ(report.flows[0].status, FlowStatus::kPassed) << report.flows[0].message;
}

TEST(Cascade, JudgesNobodyWhereDenseAttentionAnswersNothing) {
  FakeRunner runner;
  runner.dense = "wrong";
  const Report report = run(runner, {"wrong"});
  ASSERT_EQ(report.notes.size(), 2U) << "of the second stage, too, which has no threshold";
  EXPECT_EQ(report.notes[0], "needle_multiquery 256: dense attention answers nothing here; not judged");
  EXPECT_EQ(report.notes[1], "salad 300: dense attention answers nothing here; not judged");
  EXPECT_EQ(report.flows[0].status, FlowStatus::kRuntimeError);
  EXPECT_EQ(report.flows[0].message, "no stage judged it: " + report.notes[0]);
  EXPECT_EQ(report.flows[0].stage, kUnjudged);
  EXPECT_NE(to_table(report).find(report.notes[0]), std::string::npos);
  EXPECT_NE(to_json(report).find(report.notes[0]), std::string::npos);
}

TEST(Cascade, ATaskThatDenseAttentionFailsIsNotAskedAtMoreTokens) {
  FakeRunner runner;
  runner.dense = "half";
  Suite suite =
      parse_suite(R"([{"task": "salad", "tokens": 300, "samples": 4}, {"task": "needle_multiquery", "tokens": 400, "samples": 4},
                                {"task": "salad", "tokens": 500, "samples": 4}])",
                  "long");
  suite.least_dense = 0.6;
  suite.speed_pairs = 0;
  const Report report = run(runner, {"right"}, "s", suite);
  ASSERT_EQ(report.dense.size(), 2U) << "of both tasks once";
  EXPECT_EQ(report.dense[1].task, "needle_multiquery");
  ASSERT_EQ(report.notes.size(), 5U) << "each stage says that it judges nobody";
  EXPECT_EQ(report.notes[0], "salad 300: dense attention answers 50%; left out of means");
  EXPECT_EQ(report.notes[4], "salad 500: not asked, since dense attention answers 50% at 300 tokens");
  EXPECT_EQ(runner.prefills, 2);
  suite.speed_pairs = 4;
  EXPECT_EQ(run(runner, {"right"}, "s", suite).dense.size(), 3U) << "it is asked to be timed";
  suite.speed_pairs = 0;
  suite.least_dense = 0.5;
  EXPECT_EQ(run(runner, {"right"}, "s", suite).dense.size(), 3U);
}

TEST(Cascade, ATaskThatAllFlowsAnswerAlikeIsLeftOutOfMeans) {
  FakeRunner runner;
  const Suite suite = parse_suite(R"([{"task": "needle_multiquery", "tokens": 256, "samples": 8, "questions": 8},
                                      {"task": "salad", "tokens": 300, "samples": 4}])",
                                  "two");
  const Report report = run(runner, {"right", "seven", "narrow"}, "s", suite);  // the first seven questions of each task
  EXPECT_TRUE(report.dense[0].counted);
  EXPECT_FALSE(report.dense[1].counted);
  ASSERT_EQ(report.notes.size(), 1U);
  EXPECT_EQ(report.notes[0], "salad 300: all flows answer alike; left out of means");
  for (const FlowReport& flow : report.flows) {
    EXPECT_FALSE(flow.tasks.at(1).counted) << flow.name;
    EXPECT_DOUBLE_EQ(flow.mean->accuracy, flow.tasks.at(0).accuracy) << flow.name;
  }
  EXPECT_EQ(run(runner, {"right", "seven"}, "s", suite).notes.size(), 0U) << "two flows are often alike";
  EXPECT_EQ(run(runner, {"right", "right", "right"}, "s", suite).notes.size(), 0U) << "something has to be left";
}

TEST(Cascade, HasTheDifferencesBetweenFlows) {
  FakeRunner runner;
  const Report report = run(runner, {"right", "half", "seven", "refused"});
  ASSERT_EQ(report.differences.size(), 3U) << "of whoever was asked";
  EXPECT_EQ(report.differences[0].flow, "right");
  EXPECT_EQ(report.differences[0].other, "half");
  EXPECT_DOUBLE_EQ(report.differences[0].difference, 0.5);
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["differences"][0]["other"], "half");
  EXPECT_EQ(json["flows"][1]["tasks"][0]["credits"], nlohmann::json::parse("[[1, 0, 1, 0], [1, 0, 1, 0]]"));
  EXPECT_EQ(json["flows"][0]["lengths"][0]["tokens"], 256);
  EXPECT_EQ(json["dense"]["mean"]["accuracy"], 1);
  const std::string table = to_table(report, true);
  EXPECT_NE(table.find("beside"), std::string::npos);
}

TEST(Cascade, ATaskThatCannotBeAskedLeavesTheOthers) {
  FakeRunner runner;
  runner.failing_prefill = 2;
  const Report report = run(runner, {"right"});
  ASSERT_EQ(report.errors.size(), 1U);
  EXPECT_EQ(report.errors[0], "needle_multiquery 256, needle_multiquery 256: too large a document");
  ASSERT_EQ(report.dense.size(), 1U);
  EXPECT_EQ(report.dense[0].task, "salad");
  ASSERT_EQ(report.flows[0].tasks.size(), 1U);
  EXPECT_TRUE(report.flows[0].speed.has_value());
  EXPECT_EQ(report.seed.size(), 64U);
  EXPECT_NE(to_table(report).find("not run: " + report.errors[0]), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(to_json(report))["errors"].size(), 1U);
  ASSERT_TRUE(report.failure);
  try {
    std::rethrow_exception(report.failure);
  } catch (const InputError& error) {
    EXPECT_EQ(error.hint(), "buy memory");
  }
}

TEST(Cascade, TimesOfATaskThatFailedAreNoOthers) {
  const auto pairs_of_salad = [](int failing) {
    FakeRunner runner;
    runner.failing_prefill = failing;
    const Report report = run(runner, {"right"});
    EXPECT_EQ(report.errors.size(), failing == 0 ? 0U : 1U);
    const auto& tasks = report.flows.at(0).speed.value().tasks;
    const auto salad = std::find_if(tasks.begin(), tasks.end(), [](const TaskSpeed& task) { return task.task == "salad"; });
    return salad == tasks.end() ? size_t{0} : salad->seconds.fast.size();
  };
  EXPECT_GT(pairs_of_salad(0), 0U);
  EXPECT_EQ(pairs_of_salad(2), pairs_of_salad(0)) << "the first of two batches was timed";
}

TEST(Cascade, AFlowThatNoStageJudgedDidNotPass) {
  FakeRunner runner;
  runner.failing_prefill = 1;
  const Suite one = parse_suite(R"([{"task": "salad", "tokens": 300, "samples": 4}])", "one");
  const Report report = run(runner, {"right"}, "s", one);
  EXPECT_EQ(report.flows[0].status, FlowStatus::kRuntimeError);
  EXPECT_EQ(report.flows[0].message, "no stage judged it: " + report.errors.at(0));
  EXPECT_FALSE(report.flows[0].speed.has_value()) << "what is timed is what was asked";
  FakeRunner weak;
  weak.dense = "wrong";
  const Suite strict = parse_suite(R"([{"task": "salad", "tokens": 300, "samples": 4, "threshold": 0.5}])", "strict");
  const Report unjudged = run(weak, {"right"}, "s", strict);
  EXPECT_EQ(unjudged.flows[0].status, FlowStatus::kRuntimeError);
  EXPECT_EQ(unjudged.flows[0].message, "no stage judged it: " + unjudged.notes.at(0));
}

TEST(Cascade, SpeedThatCannotBeMeasuredDoesNotTakeBackAPass) {
  FakeRunner runner;
  const Report report = run(runner, {"narrow"});
  EXPECT_EQ(report.flows[0].status, FlowStatus::kPassed);
  EXPECT_EQ(report.flows[0].stage, "speed");
  EXPECT_EQ(report.flows[0].message, "no room to time it");
  EXPECT_EQ(report.flows[0].hint, "shorten it");
  EXPECT_FALSE(report.flows[0].speed.has_value());
}

TEST(Cascade, AFlowThatHadQuietDoesNotLookForItAgain) {
  FakeRunner runner;
  run(runner, {"right"});
  const std::vector<double>& patience = runner.patience.at("right");
  ASSERT_GT(patience.size(), 1U);
  EXPECT_GE(patience[0], kOneLook);
  for (size_t i = 1; i < patience.size(); ++i) EXPECT_EQ(patience[i], 0);
}

// This run takes milliseconds.
TEST(Cascade, NoRunWaitsForQuietLongerThanHalfOfItsWork) {
  FakeRunner runner;
  const Report report = run(runner, {"restless", "half"});
  const std::vector<double>& patience = runner.patience.at("restless");
  ASSERT_GT(patience.size(), 1U);
  EXPECT_GE(patience[0], kOneLook) << "a look is free";
  for (size_t i = 1; i < patience.size(); ++i) EXPECT_LT(patience[i], report.seconds / 2);
  EXPECT_GE(runner.patience.at("half").at(0), kOneLook);
}

TEST(Cascade, NoFlowWaitsForQuietLongerThanItsSuiteAllows) {
  Suite suite = small_suite();
  suite.speed_patience = 0.03125;
  FakeRunner runner;
  const Report report = run(runner, {"restless"}, "s", suite);
  EXPECT_EQ(runner.patience.at("restless").at(0), 0.03125);
  EXPECT_EQ(report.flows[0].speed.value().conditions.waited, 0.03125) << "of all tasks";
}

TEST(Cascade, QuestionsFollowFromTheSeedAloneWhateverFlowsTakePart) {
  FakeRunner a;
  FakeRunner b;
  FakeRunner c;
  const Report first = run(a, {"right"});
  run(b, {"right", "half", "wrong"});
  run(c, {"right"}, "another");
  EXPECT_EQ(a.asked, b.asked);
  EXPECT_NE(a.asked, c.asked);
  EXPECT_EQ(Seed::parse(first.seed), Seed::parse("s")) << "the reported seed repeats the run";
}

}  // namespace
}  // namespace sluice::test
