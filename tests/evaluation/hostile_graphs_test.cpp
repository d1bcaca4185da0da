#include <gtest/gtest.h>

#include "scripting/graph/text.h"
#include "tests/evaluation/graph_trial.h"
#include "tests/support/hostile_flow.h"
#include "tests/support/sanitized.h"

namespace sluice::test {
namespace {

// tests/stress/random_graphs.cpp does the same for as many as one likes.
TEST(HostileGraphs, AreCheckedPlannedAndCompiledInTime) {
  constexpr uint64_t kGraphs = 200;
  constexpr double kMostSeconds = 2;
  int accepted = 0;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const FlowGraph graph = testing::hostile_flow(seed);
    const Trial trial = try_graph(graph);
    ASSERT_EQ(trial.fault, "") << "seed " << seed << ": tests/stress_graphs --first " << seed << " --count 1 --print shows it";
    for (const TrialStage& stage : trial.stages) EXPECT_LT(stage.seconds, kMostSeconds) << stage.name << " of seed " << seed;
    accepted += trial.refused.empty() ? 1 : 0;
  }
  EXPECT_GT(accepted, static_cast<int>(kGraphs) / 2);
}

}  // namespace
}  // namespace sluice::test
