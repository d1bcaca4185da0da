// When a cascade replays flows on traces, and when it does not.

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "agents/evaluation/cascade.h"
#include "tests/evaluation/fake_runner.h"

namespace sluice::test {
namespace {

TEST(Cascade, JudgesOnTracesBeforeAnyQuestionIsAsked) {
  FakeRunner runner;
  runner.traces = std::make_unique<TraceResult>();
  runner.traces->scores.mass.mean = 0.75;
  const Report report = run(runner, {"right", "shapely", "inexact"});
  ASSERT_TRUE(report.flows[0].traces);
  EXPECT_EQ(report.flows[0].traces->scores.mass.mean, 0.75);
  EXPECT_EQ(report.flows[0].stages.at(2).name, "traces");
  EXPECT_FALSE(report.flows[1].traces);
  EXPECT_EQ(report.flows[1].untraced, "reshape: 256 numbers do not make 3 heads");
  EXPECT_FALSE(report.flows[1].tasks.empty()) << "a flow for another shape goes on";
  EXPECT_FALSE(report.flows[2].traces) << "what disagrees with the reference is not judged";
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["flows"][0]["traces"]["mass"], 0.75);
  EXPECT_TRUE(json["flows"][1]["traces"].is_null());
  EXPECT_EQ(json["flows"][1]["untraced"], "reshape: 256 numbers do not make 3 heads");
  EXPECT_NE(to_table(report).find("trace mass"), std::string::npos);
}

TEST(Cascade, NeitherComparesNorReplaysWhereItOnlyAsks) {
  FakeRunner runner;
  runner.traces = std::make_unique<TraceResult>();
  Suite suite = small_suite();
  suite.only_asks = true;
  const Report report = run(runner, {"right", "inexact"}, "s", suite);
  for (const FlowReport& flow : report.flows) {
    EXPECT_FALSE(flow.traces) << flow.name;
    EXPECT_FALSE(flow.tasks.empty()) << flow.name;
    for (const StageTime& stage : flow.stages) EXPECT_TRUE(stage.name != "numerical" && stage.name != "traces") << stage.name;
  }
}

TEST(Cascade, NeedsNoQuestionsForTraces) {
  FakeRunner runner;
  runner.traces = std::make_unique<TraceResult>();
  runner.traces->scores.mass.mean = 0.75;
  TerminalProgress progress;
  const Report report =
      run_cascade_on_traces({{"right", {"right", {}}}, {"refused", {"refused", {}}}}, runner, Seed::parse("s"), progress);
  EXPECT_EQ(report.flows.at(0).status, FlowStatus::kPassed);
  EXPECT_EQ(report.flows.at(1).status, FlowStatus::kRejectedStatic);
  EXPECT_EQ(runner.prefills, 0);
  EXPECT_EQ(to_table(report).find("(dense)"), std::string::npos);
  EXPECT_NE(to_table(report).find("75.0%"), std::string::npos);
}

}  // namespace
}  // namespace sluice::test
