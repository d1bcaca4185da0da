#include "agents/orchestrator/verdict.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "agents/evaluation/metric_table.h"
#include "agents/evaluation/report.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

using nlohmann::json;
using store::StageStatus;

TaskResult task(const std::string& stage, const std::string& name, double accuracy) {
  TaskResult result;
  result.stage = stage;
  result.task = name;
  result.tokens = 1024;
  result.samples = 8;
  result.accuracy = accuracy;
  result.dense_accuracy = 1;
  result.lost = 3;
  return result;
}

/// A flow that went through two stages of a suite and was timed.
Report whole_report() {
  Report report;
  report.seed = "5eed";
  FlowReport flow;
  flow.name = "flow";
  flow.stages = {{"verify", 0.5}, {"numerical", 1.5}, {"short", 10}, {"long", 20}, {"speed", 5}};
  flow.tasks = {task("short", "salad", 0.5), task("short", "trace", 1), task("long", "salad", 0.75)};
  flow.tasks[2].tokens = 4096;
  flow.tasks.push_back(task("long", "text", 0.75));
  flow.tasks[3].loss = LossResult{2.5, 2.25, {0.25, 0.25}, 0.25, Interval{0.25, 0.25}};
  flow.speed.emplace();
  flow.speed->speedup = {2, 1.5, 2.5};
  flow.speed->pages_read = 0.25;
  flow.speed->mass = {0.5, 1};
  report.flows.push_back(flow);
  return report;
}

const store::Metric& metric(const store::Verdict& verdict, const std::string& name, const std::string& of_task = {}) {
  for (const store::Metric& each : verdict.metrics) {
    if (each.name == name && each.task == of_task) return each;
  }
  throw std::out_of_range(name);
}

TEST(Verdict, HasAStageForEachThatTheFlowCameTo) {
  const store::Verdict verdict = verdict_of(to_json(whole_report()));
  EXPECT_EQ(verdict.status, store::Status::kPassed);
  ASSERT_EQ(verdict.stages.size(), 5U);
  for (const store::StageResult& stage : verdict.stages) EXPECT_EQ(stage.status, StageStatus::kPassed) << stage.stage;
  EXPECT_EQ(verdict.stages[2].stage, "short");
  EXPECT_EQ(verdict.stages[2].seconds, 10);
  const json tasks = json::parse(verdict.stages[2].details)["tasks"];
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks[0]["lost"], 3);
  EXPECT_EQ(json::parse(verdict.stages[3].details)["tasks"].size(), 2U);
  EXPECT_EQ(json::parse(verdict.stages[0].details), json::object());
}

TEST(Verdict, MeansHaveTheIntervalsOfTheReport) {
  Report report = whole_report();
  report.flows[0].mean = MeanAccuracy{0.75, {0.5, 0.875}, 1, {0.75, 1}, -0.25, {-0.5, 0}};
  const store::Verdict verdict = verdict_of(to_json(report));
  EXPECT_EQ(metric(verdict, "accuracy").value, 0.75);
  EXPECT_EQ(metric(verdict, "accuracy").low, 0.5);
  EXPECT_EQ(metric(verdict, "accuracy").high, 0.875);
  EXPECT_EQ(metric(verdict, "dense_accuracy").low, 0.75);
  // Of a report without means they are found, but for intervals.
  const store::Verdict earlier = verdict_of(to_json(whole_report()));
  EXPECT_EQ(metric(earlier, "accuracy").value, 0.75);
  EXPECT_EQ(metric(earlier, "accuracy").low, std::nullopt);
}

TEST(Verdict, OfAConfirmationIsAsUncertainAsItsNumberOfTries) {
  Report report = whole_report();
  report.flows[0].score = FlowScore{0.5, Interval{0.4, 0.6}};
  const store::Verdict plain = verdict_of(to_json(report));
  const store::Verdict wide = confirmed_verdict(plain, {.seed = "5eed", .tries = 3, .factor = 4});
  EXPECT_EQ(wide.seed, "5eed");
  EXPECT_EQ(plain.seed, "");
  ASSERT_EQ(wide.metrics.size(), plain.metrics.size());
  for (const char* name : {"score", "speedup"}) {
    EXPECT_EQ(metric(wide, name).value, metric(plain, name).value);
    EXPECT_LT(*metric(wide, name).low, *metric(plain, name).low) << name;
    EXPECT_GT(*metric(wide, name).high, *metric(plain, name).high) << name;
  }
  EXPECT_FALSE(metric(wide, "pages_read").low);
  EXPECT_EQ(wide.artifacts.front().bytes, plain.artifacts.front().bytes) << "the report is what it was";
}

TEST(Verdict, HasWhatAFlowKeepsOnTraces) {
  Report report = whole_report();
  report.flows[0].stages.insert(report.flows[0].stages.begin() + 2, {"traces", 0.25});
  TraceResult& traces = report.flows[0].traces.emplace();
  traces.scores = {{0.75, Interval{0.5, 1}}, {0.125, Interval{0, 0.25}}, {0.5, Interval{0.25, 0.75}}};
  traces.heads.push_back({18, 2, 0.125, traces.scores});
  const store::Verdict verdict = verdict_of(to_json(report));
  EXPECT_EQ(metric(verdict, "trace_mass").value, 0.75);
  EXPECT_EQ(metric(verdict, "trace_mass").low, 0.5);
  EXPECT_EQ(metric(verdict, "trace_regret").value, 0.125);
  EXPECT_EQ(metric(verdict, "trace_error").high, 0.75);
  EXPECT_EQ(verdict.stages.at(2).stage, "traces");
  EXPECT_EQ(json::parse(verdict.stages[2].details)["heads"][0]["layer"], 18);
  report.flows[0].traces.reset();
  report.flows[0].untraced = "of another shape";
  const store::Verdict without = verdict_of(to_json(report));
  EXPECT_EQ(without.status, store::Status::kPassed);
  EXPECT_EQ(without.stages.at(2).status, StageStatus::kSkipped);
  EXPECT_EQ(without.stages[2].message, "of another shape");
  EXPECT_THROW(metric(without, "trace_mass"), std::out_of_range);
}

TEST(Verdict, HasSpeedWithTheMassOfEachLayer) {
  const store::Verdict verdict = verdict_of(to_json(whole_report()));
  const json speed = json::parse(verdict.stages[4].details);
  EXPECT_EQ(speed["mass"], json({0.5, 1.0}));
  EXPECT_EQ(speed["ratio"], 2);
  EXPECT_EQ(speed["low"], 1.5);
  EXPECT_EQ(speed["pages_read"], 0.25);
  EXPECT_TRUE(speed["quiet"].is_null()) << "nobody looked";
  EXPECT_EQ(metric(verdict, "mass").value, 0.75);
  EXPECT_EQ(metric(verdict, "speedup").unit, "x dense");
  EXPECT_EQ(metric(verdict, "accuracy").value, 0.75) << "the mean of four tasks";
  EXPECT_EQ(metric(verdict, "loss").value, 0.25) << "of those that have it";
  EXPECT_EQ(metric(verdict, "loss", "text").low, 0.25);
  EXPECT_EQ(metric(verdict, "accuracy", "trace").value, 1);
}

TEST(Verdict, TellsUnderWhatSpeedWasMeasured) {
  Report report = whole_report();
  TimingConditions& conditions = report.flows[0].speed->conditions;
  conditions.load = {.seconds = 1, .own = 0, .cores = 2, .on_cores = {1.5, 2}, .group = {}};
  conditions.clocks = {{1410, 1980, 2619, false, {"power_cap"}, 0}};
  const json speed = json::parse(verdict_of(to_json(report)).stages.at(4).details);
  EXPECT_EQ(speed["quiet"], false);
  EXPECT_EQ(speed["others_busy"], 1.5);
  EXPECT_EQ(speed["clocks"]["held_by"], json({"power_cap"}));
}

// Flows with flow.pattern are timed, and nobody knows the mass that they cover.
TEST(Verdict, TakesSpeedWithoutMass) {
  Report report = whole_report();
  report.flows[0].speed->mass.clear();
  const store::Verdict verdict = verdict_of(to_json(report));
  EXPECT_EQ(verdict.status, store::Status::kPassed);
  EXPECT_GT(metric(verdict, "speedup").value, 0);
}

TEST(Verdict, MeansLeaveOutWhatDenseAttentionDoesNotAnswer) {
  Report report = whole_report();
  report.flows[0].tasks[0].counted = false;
  const store::Verdict verdict = verdict_of(to_json(report));
  EXPECT_NEAR(metric(verdict, "accuracy").value, 2.5 / 3, 1e-12);
  EXPECT_EQ(metric(verdict, "accuracy", "salad").value, 0.5) << "it is told all the same";
}

TEST(Verdict, HasEveryMetricOfTheTableForTheWholeEvaluation) {
  Report report = whole_report();
  report.flows[0].traces.emplace();
  report.flows[0].score = FlowScore{0.75, Interval{0.5, 0.875}};
  const store::Verdict verdict = verdict_of(to_json(report));
  for (const MetricInfo& info : metrics::kAll) {
    const store::Metric& whole = metric(verdict, info.name);
    EXPECT_EQ(whole.length, 0) << info.name;
    EXPECT_EQ(whole.unit, info.unit()) << info.name;
  }
  EXPECT_EQ(metric(verdict, "score").low, 0.5);
  EXPECT_EQ(metric(verdict, "score").high, 0.875);
}

TEST(Verdict, NamesTheStageThatEndedTheFlow) {
  Report report = whole_report();
  FlowReport& flow = report.flows[0];
  flow.status = FlowStatus::kBelowThreshold;
  flow.stage = "short";
  flow.message = "accuracy 0.2";
  flow.stages.erase(flow.stages.begin() + 3);
  flow.tasks.resize(2);
  const store::Verdict verdict = verdict_of(to_json(report));
  ASSERT_EQ(verdict.stages.size(), 4U);
  EXPECT_EQ(verdict.stages[2].status, StageStatus::kFailed);
  EXPECT_EQ(verdict.stages[2].message, "accuracy 0.2");
  EXPECT_EQ(verdict.stages[3].status, StageStatus::kPassed) << "it was timed all the same";
}

TEST(Verdict, ASpeedThatCouldNotBeMeasuredTakesNoPassBack) {
  Report report = whole_report();
  report.flows[0].speed.reset();
  report.flows[0].stage = "speed";
  report.flows[0].message = "no room to time it";
  const store::Verdict verdict = verdict_of(to_json(report));
  EXPECT_EQ(verdict.status, store::Status::kPassed);
  EXPECT_EQ(verdict.stages[4].status, StageStatus::kSkipped);
  EXPECT_EQ(verdict.stages[4].message, "no room to time it");
  EXPECT_THROW(metric(verdict, "speedup"), std::out_of_range);
}

TEST(Verdict, AStageThatNeverBeganIsNamedToo) {
  Report report = whole_report();
  FlowReport& flow = report.flows[0];
  flow.status = FlowStatus::kRuntimeError;
  flow.stage = "suite";
  flow.message = "no stage judged it";
  const store::Verdict verdict = verdict_of(to_json(report));
  EXPECT_EQ(verdict.stages.back().stage, "suite");
  EXPECT_EQ(verdict.stages.back().status, StageStatus::kFailed);
}

TEST(Verdict, WhatWasNotMeasuredIsNoVerdict) {
  Report report = whole_report();
  report.errors = {"short, salad 1024: out of memory"};
  EXPECT_THROW(verdict_of(to_json(report)), InputError) << "the mean of the rest can be compared with nobody's";
  report.errors.clear();
  report.flows[0].status = FlowStatus::kRuntimeError;
  report.flows[0].stage = "verify";
  EXPECT_THROW(verdict_of(to_json(report)), InputError) << "a sandbox that did not start, say";
}

TEST(Verdict, TellsNoSecret) {
  Report report = whole_report();
  report.model = "/home/ada/models/mini";
  const store::Verdict verdict = verdict_of(to_json(report));
  ASSERT_EQ(verdict.artifacts.size(), 2U);
  EXPECT_EQ(verdict.artifacts[0].name, "report.json");
  EXPECT_EQ(verdict.artifacts[0].bytes.find("credits"), std::string::npos);
  EXPECT_EQ(verdict.artifacts[1].name, "credits.json") << "which nobody may read";
  EXPECT_EQ(json::parse(verdict.artifacts[0].bytes)["model"], "mini");
  EXPECT_EQ(verdict.artifacts[0].bytes.find("5eed"), std::string::npos);
  EXPECT_TRUE(verdict.seed.empty());
}

TEST(Verdict, RefusesWhatIsNoReport) {
  for (const char* bad : {"", "{}", "[]", R"({"flows": []})", R"({"flows": [{"status": "unheard_of", "tasks": []}]})",
                          R"({"flows": [{"status": "passed", "tasks": [{}]}]})",
                          R"({"flows": [{"status": "passed", "tasks": [], "stages": [{"name": "verify", "seconds": -1}]}]})"}) {
    EXPECT_ANY_THROW(verdict_of(bad)) << bad;
  }
}

}  // namespace
}  // namespace sluice
