#include "agents/evaluation/cascade.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "scripting/graph/error.h"
#include "tests/agents/fixtures.h"

namespace sluice::test {
namespace {

class FakeBatch : public PrefilledBatch {
 public:
  std::vector<Sample> samples;
};

/// Answers as the flow's file name says: "right", "wrong", "half", "throws", "refused", "inexact". Dense is right.
class FakeRunner : public Runner {
 public:
  Candidate prepare(const std::string& path) override {
    if (path == "refused") throw FlowError({"refused.lua", 3}, "unknown operator", "try max");
    Candidate candidate;
    candidate.plan.graph.name = path;
    return candidate;
  }
  std::optional<std::string> check_numerically(const Candidate& candidate) override {
    return candidate.plan.graph.name == "inexact" ? std::optional<std::string>("scores differ") : std::nullopt;
  }
  int batch_size(int) const override { return 4; }
  std::unique_ptr<PrefilledBatch> prefill(const std::vector<JobDocument>& documents) override {
    auto batch = std::make_unique<FakeBatch>();
    for (const JobDocument& document : documents) {
      ++prefills;
      for (const Job& job : document) batch->samples.push_back(job.sample);
    }
    return batch;
  }
  std::vector<Generation> decode(const PrefilledBatch& batch, const Plan* plan) override {
    const std::string name = plan != nullptr ? plan->graph.name : "right";
    ++decodes[plan != nullptr ? name : "dense"];
    if (name == "throws") throw std::runtime_error("out of something");
    std::vector<Generation> generations;
    for (const Sample& sample : dynamic_cast<const FakeBatch&>(batch).samples) {
      const bool right = name == "right" || (name == "half" && generations.size() % 2 == 0);
      generations.push_back({right ? sample.answer : "nothing", true});
      asked.insert(sample.prompt);
    }
    return generations;
  }
  SpeedResult measure(const PrefilledBatch&, const Plan& plan, const SpeedOptions&) override {
    measured.push_back(plan.graph.name);
    return {};
  }

  int prefills = 0;
  std::map<std::string, int> decodes;
  std::set<std::string> asked;
  std::vector<std::string> measured;
};

Suite small_suite() {
  return parse_suite(R"([{"task": "needle_multikey", "tokens": 256, "samples": 8, "questions": 4, "threshold": 0.6},
                         {"task": "salad", "tokens": 300, "samples": 4, "threshold": 0}])",
                     "small");
}

Report run(FakeRunner& runner, const std::vector<std::string>& flows, const std::string& seed = "s") {
  const CountingTokenizer tokenizer;
  std::vector<Contestant> contestants;
  for (const std::string& flow : flows) contestants.push_back({flow, flow});
  Progress progress;
  return run_cascade(small_suite(), contestants, runner, {tokenizer, &mini_vocabulary()}, Seed::parse(seed), progress);
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

TEST(Cascade, LaterStagesAreNotRunBelowTheThreshold) {
  FakeRunner runner;
  const Report report = run(runner, {"right", "half"});
  EXPECT_EQ(report.flows[0].tasks.size(), 2U);
  EXPECT_EQ(report.flows[1].tasks.size(), 1U);
  EXPECT_DOUBLE_EQ(report.flows[1].tasks[0].accuracy, 0.5);
  EXPECT_EQ(report.flows[1].stage, "needle_multikey 256");
}

TEST(Cascade, MeasuresTheSpeedOfEveryFlowThatRuns) {
  FakeRunner runner;
  run(runner, {"right", "wrong", "throws", "refused", "inexact"});
  EXPECT_EQ(runner.measured, (std::vector<std::string>{"right", "wrong"}));
}

TEST(Cascade, PrefillsOnceForAllFlows) {
  FakeRunner one;
  run(one, {"right"});
  FakeRunner many;
  run(many, {"right", "right", "right"});
  EXPECT_EQ(one.prefills, many.prefills);
  EXPECT_EQ(many.decodes["right"], 3 * many.decodes["dense"]);
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

TEST(Cascade, ComparesPairsWithDense) {
  FakeRunner runner;
  const Report report = run(runner, {"half"});
  const TaskResult& result = report.flows[0].tasks[0];
  EXPECT_EQ(result.samples, 8);
  EXPECT_EQ(result.documents, 2);
  EXPECT_EQ(result.lost, 4);
  EXPECT_EQ(result.gained, 0);
  EXPECT_DOUBLE_EQ(result.p_value, 0.125);
  EXPECT_DOUBLE_EQ(result.dense_accuracy, 1);
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

TEST(Report, JsonHasTheDocumentedMembers) {
  FakeRunner runner;
  const std::string text = to_json(run(runner, {"right", "refused"}));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["schema"], "sluice.eval/1");
  for (const char* key : {"device", "model", "seed", "suite", "dialect", "dense", "flows"})
    EXPECT_TRUE(json.contains(key)) << key;
  const auto& passed = json["flows"][0];
  EXPECT_EQ(passed["status"], "passed");
  for (const char* key : {"name", "tokens", "samples", "accuracy", "low", "high", "dense_accuracy"}) {
    EXPECT_TRUE(passed["tasks"][0].contains(key)) << key;
  }
  for (const char* key : {"ratio", "low", "high"}) EXPECT_TRUE(passed["speedup"].contains(key)) << key;
  EXPECT_TRUE(passed.contains("pages_read"));
  EXPECT_TRUE(passed.contains("mass"));
  EXPECT_EQ(json["flows"][1]["status"], "rejected_static");
  EXPECT_TRUE(json["flows"][1]["speedup"].is_null());
}

TEST(Report, NeverTellsAnswers) {
  FakeRunner runner;
  const Report report = run(runner, {"wrong", "half"});
  for (const std::string& text : {to_json(report), to_table(report)}) {
    for (const std::string& prompt : runner.asked) EXPECT_EQ(text.find(prompt.substr(prompt.size() - 40)), std::string::npos);
  }
}

TEST(Report, TableHasALineForEachFlowAndItsReason) {
  FakeRunner runner;
  const std::string table = to_table(run(runner, {"right", "wrong", "refused"}));
  for (const char* part : {"(dense)", "passed", "below_threshold", "rejected_static", "hint: try max", "Seed "}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  }
}

}  // namespace
}  // namespace sluice::test
