#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <set>

#include "scripting/graph/ops.h"
#include "scripting/graph/text.h"
#include "tests/support/flow_judge.h"
#include "tests/support/random_flow.h"

namespace sluice::testing {
namespace {

/// Some cross a page boundary, some repeat keys so that scores tie, some hold infinities and NaN.
JudgeOptions options_of(uint64_t seed, const FlowGraph& graph) {
  const auto most_tokens = static_cast<uint64_t>(9 * graph.geometry.page);
  return {.tokens = static_cast<int>(1 + seed * 37 % most_tokens),
          .steps = 3,
          .seed = seed,
          .levels = seed % 3 == 0 ? 2 : 0,
          .specials = seed % 5 == 0};
}

/// States saved as another state was loaded, in flows as devices get them.
int handed_over(const FlowGraph& graph) {
  const FlowGraph compiled = compile(graph).plan.graph;
  int count = 0;
  for (const NodeId id : compiled.saves) {
    const Node& save = compiled.nodes[static_cast<size_t>(id)];
    const Node& value = compiled.nodes[static_cast<size_t>(save.inputs[0])];
    count += value.op == Op::kLoad && value.attributes.field != save.attributes.field ? 1 : 0;
  }
  return count;
}

TEST(RandomFlows, AgreeWithOracle) {
  constexpr uint64_t kFlows = 400;
  int scores = 0;
  int known = 0;
  int handed = 0;
  std::set<Op> seen;
  for (uint64_t seed = 0; seed < kFlows; ++seed) {
    const FlowGraph graph = random_flow(seed);
    for (const Node& node : graph.nodes) seen.insert(node.op);
    const Verdict verdict = judge(graph, options_of(seed, graph));
    ASSERT_EQ(verdict.fault, "") << "seed " << seed << "\n" << to_text(graph);
    scores += verdict.scores;
    known += verdict.known;
    handed += handed_over(graph);
  }
  // The comparison means something only where float32 determines the result, and only for operators that occur.
  EXPECT_GT(known, scores * 3 / 5);
  EXPECT_GT(handed, 20);
  for (const OpInfo& info : all_ops()) {
    const bool is_elsewhere =
        info.op == Op::kThreshold || info.op == Op::kMass || info.op == Op::kTopP || info.op == Op::kTopKTokens;
    if (!is_elsewhere) {
      EXPECT_TRUE(seen.contains(info.op)) << info.name;
    }
  }
}

TEST(RandomFlows, WithAfterStagesAgreeWithOracle) {
  int scores = 0;
  int known = 0;
  int kept = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    FlowGraph graph = random_after(seed);
    graph.sources.front().beside.reset();  // which attention joins with what is selected
    const Verdict verdict = judge(graph, options_of(seed, graph));
    ASSERT_EQ(verdict.fault, "") << "seed " << seed << "\n" << to_text(graph);
    scores += verdict.scores;
    known += verdict.known;
    kept += compile(graph).plan.after.empty() ? 0 : 1;
  }
  EXPECT_GT(known, scores / 2);
  EXPECT_GT(kept, 120);
}

TEST(RandomFlows, ThatSelectTokensOrWeightsAgreeWithOracle) {
  int scores = 0;
  int known = 0;
  std::set<Op> seen;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    FlowGraph graph = random_tokens(seed);
    for (const Node& node : graph.nodes) seen.insert(node.op);
    graph.sources.front().beside.reset();
    const Verdict verdict = judge(graph, options_of(seed, graph));
    ASSERT_EQ(verdict.fault, "") << "seed " << seed << "\n" << to_text(graph);
    scores += verdict.scores;
    known += verdict.known;
  }
  EXPECT_GT(known, scores / 2);
  EXPECT_TRUE(seen.contains(Op::kTopP) && seen.contains(Op::kTopKTokens));
}

/// Lets dispatch see one instruction set only, until this goes away.
class OnlyTarget {
 public:
  explicit OnlyTarget(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
  }
  ~OnlyTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;
};

TEST(RandomFlows, AgreeWithOracleOnEveryInstructionSet) {
  const int64_t supported = hwy::SupportedTargets();
  for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_SCALAR}) {
    if ((supported & target) == 0 && target != HWY_SCALAR) continue;
    const OnlyTarget only(target);
    for (uint64_t seed = 400; seed < 520; ++seed) {
      const FlowGraph graph = random_flow(seed);
      const Verdict verdict = judge(graph, options_of(seed, graph));
      ASSERT_EQ(verdict.fault, "") << hwy::TargetName(target) << ", seed " << seed << "\n" << to_text(graph);
    }
  }
}

}  // namespace
}  // namespace sluice::testing
