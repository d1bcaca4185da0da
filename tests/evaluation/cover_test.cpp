// Attention to summaries of pages beside tokens, on the CPU, against the reference.
#include <gtest/gtest.h>

#include "agents/evaluation/numerical.h"
#include "tests/support/covers.h"
#include "tests/support/random_flow.h"

namespace sluice::test {
namespace {

TEST(Covers, RandomOnesAgreeWithTheReferenceOnTheCpu) {
  const auto device = create_cpu_device({2});
  int judged = 0;
  for (uint64_t seed = 0; judged < 60; ++seed) {
    const FlowGraph graph = sluice::testing::random_cover(seed);
    if (graph.geometry.head_dim % 8 != 0) continue;  // the CPU attends in no others
    ++judged;
    EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt) << "seed " << seed;
  }
}

TEST(Covers, AnotherCoverIsFound) { testing::expect_other_covers_found(*create_cpu_device({1})); }

TEST(Covers, ABiasMayBeAStateAsTheLastStepSavedIt) { testing::expect_bias_as_loaded(*create_cpu_device({1})); }

}  // namespace
}  // namespace sluice::test
