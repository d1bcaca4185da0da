// The whole cascade on the model that ships with Sluice.

#include <gtest/gtest.h>

#include <cstdio>

#include "agents/evaluation/cascade.h"
#include "agents/evaluation/engine_runner.h"
#include "agents/evaluation/flow_files.h"
#include "host/model.h"
#include "tests/agents/fixtures.h"

namespace sluice::test {
namespace {

constexpr const char* kMini = SLUICE_SOURCE_DIR "/host/models/mini";

class MiniEvaluation : public testing::Test {
 protected:
  Report evaluate(const Suite& suite, const std::vector<std::string>& flows, const std::string& seed) {
    std::vector<Contestant> contestants;
    for (const std::string& flow : flows) contestants.push_back({flow, find_flow(flow)});
    EngineRunner runner(*device_, *model_, *tokenizer_);
    Progress progress;
    return run_cascade(suite, contestants, runner, {*tokenizer_, &mini_vocabulary()}, Seed::parse(seed), progress);
  }

  std::unique_ptr<Device> device_ = create_cpu_device();
  std::unique_ptr<Model> model_ = load_model(kMini, *device_);
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer(kMini);
};

Suite retrieval_suite() {
  Suite suite = parse_suite(R"([{"task": "needle_multikey", "tokens": 1024, "samples": 16, "threshold": 0.5},
                                {"task": "variable_tracking", "tokens": 1024, "samples": 8, "threshold": 0}])",
                            "retrieval");
  suite.speed_batch = 2;
  suite.speed_pairs = 3;
  return suite;
}

TEST_F(MiniEvaluation, TellsGoodFlowsFromTheControl) {
  const Report report = evaluate(retrieval_suite(), {"full", "quest", "random"}, "mini");
  ASSERT_EQ(report.flows.size(), 3U);
  EXPECT_GE(report.dense[0].accuracy, 0.95);
  const FlowReport& full = report.flows[0];
  EXPECT_EQ(full.status, FlowStatus::kPassed) << full.message;
  EXPECT_EQ(full.tasks[0].lost + full.tasks[0].gained, 0) << "full attention is dense attention";
  const FlowReport& quest = report.flows[1];
  EXPECT_EQ(quest.status, FlowStatus::kPassed) << quest.message;
  EXPECT_GE(quest.tasks[0].accuracy, 0.6);
  const FlowReport& random = report.flows[2];
  EXPECT_EQ(random.status, FlowStatus::kBelowThreshold) << random.message;
  EXPECT_LE(random.tasks[0].accuracy, 0.2);
  EXPECT_LT(random.tasks[0].p_value, 0.01);
}

TEST_F(MiniEvaluation, ReportsSpeedPagesAndMass) {
  const Report report = evaluate(retrieval_suite(), {"full", "quest"}, "mini");
  for (const FlowReport& flow : report.flows) {
    ASSERT_TRUE(flow.speed.has_value()) << flow.message;
    EXPECT_GT(flow.speed->speedup.low, 0);
    EXPECT_LE(flow.speed->speedup.low, flow.speed->speedup.ratio);
    EXPECT_GE(flow.speed->speedup.high, flow.speed->speedup.ratio);
    ASSERT_EQ(flow.speed->mass.size(), 8U);
  }
  EXPECT_EQ(report.flows[0].speed->pages_read, 1);
  for (const double mass : report.flows[0].speed->mass) EXPECT_NEAR(mass, 1, 1e-5);
  EXPECT_LT(report.flows[1].speed->pages_read, 0.5);
  for (const double mass : report.flows[1].speed->mass) {
    EXPECT_GT(mass, 0);
    EXPECT_LE(mass, 1 + 1e-5);
  }
}

TEST_F(MiniEvaluation, SameSeedGivesTheSameScores) {
  const Suite suite = parse_suite(R"([{"task": "salad", "tokens": 512, "samples": 8, "threshold": 0}])", "salad");
  const Report first = evaluate(suite, {"random"}, "again");
  const Report second = evaluate(suite, {"random"}, "again");
  EXPECT_EQ(first.flows[0].tasks[0].accuracy, second.flows[0].tasks[0].accuracy);
  EXPECT_EQ(first.flows[0].tasks[0].matched, second.flows[0].tasks[0].matched);
}

TEST_F(MiniEvaluation, GenerationsOfAProblemAreSampledApart) {
  const std::string path = testing::TempDir() + "/problems.jsonl";
  std::FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs("{\"problem\": \"ask acorn =\", \"answer\": \"1\"}\n", file);
  std::fclose(file);
  const Suite suite =
      parse_suite("[{\"task\": \"jsonl:" + path + "\", \"generations\": 4, \"k\": 2, \"max_tokens\": 8}]", "problems");
  const Report report = evaluate(suite, {}, "problems");
  ASSERT_EQ(report.dense.size(), 1U);
  EXPECT_EQ(report.dense[0].samples, 4);
  EXPECT_EQ(report.dense[0].generations, 4);
  EXPECT_EQ(report.dense[0].accuracy, 0) << "the mini model boxes nothing";
}

}  // namespace
}  // namespace sluice::test
