#include <gtest/gtest.h>

#include <set>

#include "scripting/graph/ops.h"
#include "scripting/graph/text.h"
#include "tests/support/flow_judge.h"
#include "tests/support/random_flow.h"

namespace sluice::testing {
namespace {

TEST(RandomFlows, AgreeWithOracle) {
  constexpr uint64_t kFlows = 400;
  int scores = 0;
  int known = 0;
  std::set<Op> seen;
  for (uint64_t seed = 0; seed < kFlows; ++seed) {
    const FlowGraph graph = random_flow(seed);
    for (const Node& node : graph.nodes) seen.insert(node.op);
    const int page = graph.geometry.page;
    // Some cross a page boundary, some repeat keys so that scores tie, some hold infinities and NaN.
    const JudgeOptions options{.tokens = static_cast<int>(1 + seed * 37 % static_cast<uint64_t>(9 * page)),
                               .steps = 3,
                               .seed = seed,
                               .levels = seed % 3 == 0 ? 2 : 0,
                               .specials = seed % 5 == 0};
    const Verdict verdict = judge(graph, options);
    ASSERT_EQ(verdict.fault, "") << "seed " << seed << "\n" << to_text(graph);
    scores += verdict.scores;
    known += verdict.known;
  }
  // The comparison means something only where float32 determines the result, and only for operators that occur.
  EXPECT_GT(known, scores * 3 / 5);
  for (const OpInfo& info : all_ops()) {
    if (info.op != Op::kThreshold) EXPECT_TRUE(seen.contains(info.op)) << info.name;
  }
}

}  // namespace
}  // namespace sluice::testing
