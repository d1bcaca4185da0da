// Flows on recorded attention, on a GPU.
#include <gtest/gtest.h>

#include "agents/evaluation/flow_files.h"
#include "agents/evaluation/trace_judge.h"
#include "tests/cuda/gpu.h"
#include "tests/support/traced_mini.h"

namespace sluice {
namespace {

class CudaTraces : public testing::GpuTest {};

TEST_F(CudaTraces, MassIsThatOfTheEnginesProbe) {
  const auto device = create_device("cuda");
  testing::TracedMini(*device).expect_masses_of_engine();
}

TEST_F(CudaTraces, FiguresAreThoseOfTheCpu) {
  const auto cuda = create_device("cuda");
  const auto cpu = create_cpu_device();
  const AttentionTrace trace = testing::TracedMini(*cpu).record({1, 6});
  TraceJudge on_cuda(*cuda, trace, 0);
  TraceJudge on_cpu(*cpu, trace, 0);
  for (const std::string& flow : shipped_flows()) {
    const FlowScript script = read_flow(flow);
    const TraceScores got = on_cuda.judge(script).scores;
    const TraceScores wanted = on_cpu.judge(script).scores;
    EXPECT_NEAR(got.mass.mean, wanted.mass.mean, 2e-3) << flow;
    EXPECT_NEAR(got.regret.mean, wanted.regret.mean, 2e-3) << flow;
    EXPECT_NEAR(got.error.mean, wanted.error.mean, 5e-3) << flow;
  }
}

TEST_F(CudaTraces, ANarrowTypeCostsLayersThatAreDenseToo) {
  const auto device = create_device("cuda");
  TraceJudge judge(*device, testing::TracedMini(*device).record({0, 4}), 0);
  const auto dense = [&](const char* kv) {
    return judge.judge(
        {"f.lua", std::string("return sluice.flow { name = 'f', kv = '") + kv + "', layers = { rest = 'full' } }"});
  };
  EXPECT_EQ(dense("bf16").scores.error.mean, 0);
  const TraceResult narrow = dense("e4m3");
  EXPECT_GT(narrow.scores.error.mean, 5e-3);
  EXPECT_LT(narrow.scores.error.mean, 0.2);
  EXPECT_EQ(narrow.scores.mass.mean, 1);
}

}  // namespace
}  // namespace sluice
