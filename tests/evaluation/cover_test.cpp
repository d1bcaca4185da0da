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

TEST(Covers, RandomOnesOfStatesAgreeWithTheReferenceOnTheCpu) {
  const auto device = create_cpu_device({2});
  int judged = 0, leaving = 0;
  for (uint64_t seed = 0; judged < 60; ++seed) {
    const FlowGraph graph = sluice::testing::random_kept_cover(seed);
    if (graph.geometry.head_dim % 8 != 0) continue;
    ++judged;
    const Plan plan = compile(graph).plan;
    for (const PlanStep& step : plan.after) leaving += step.is_of_leaving_pages ? 1 : 0;
    EXPECT_EQ(check_against_reference(*device, graph, plan), std::nullopt) << "seed " << seed;
  }
  EXPECT_GT(leaving, 10) << "steps that run for few pages";
}

TEST(Covers, AnotherSummaryThatIsAStateIsFound) {
  const auto flow = [](const std::string& value, const std::string& options) {
    return trace(
        "local f = sluice.flow{name='f', page=16, kv='bf16'} function f.cache(c) c.a = sluice.cfill(0, {'dim'}) "
        "c.b = sluice.cfill(0, {'dim'}) end function f.index(q, c) return sluice.cover{k = c.a, v = c.b, "
        "refine = sluice.topk(q:dot(c.a):max('head'), {k = 2}), tail = 20} end "
        "function f.after(q, c, mass) c.a:save(c.k:mean('token')" +
            options + ") c.b:save(" + value + options + ") end return f",
        "f.lua");
  };
  const auto device = create_cpu_device({1});
  const std::string tail = ", {tail = 20}";
  const FlowGraph wanted = flow("c.v:mean('token')", tail);
  EXPECT_EQ(check_against_reference(*device, wanted, compile(wanted).plan), std::nullopt);
  EXPECT_TRUE(check_against_reference(*device, wanted, compile(flow("c.v:max('token')", tail)).plan).has_value());
  FlowGraph later = wanted;  // pages are saved once they have left a longer tail, which scripts may not say
  for (const NodeId save : later.saves) later.nodes[static_cast<size_t>(save)].attributes.last += 2;
  EXPECT_TRUE(check_against_reference(*device, wanted, compile(later).plan).has_value());
}

TEST(Covers, GroupsOfEverySizeAgreeWithTheReference) { testing::expect_groups_agree(*create_cpu_device({2})); }

TEST(Covers, GroupsThatNobodyLooksAtAgreeWithTheReference) { testing::expect_hidden_groups_agree(*create_cpu_device({2})); }

TEST(Covers, AnotherCoverIsFound) { testing::expect_other_covers_found(*create_cpu_device({1})); }

TEST(Covers, HugeBiasesAreNumbersAndInfiniteOnesAreNot) {
  const auto device = create_cpu_device({1});
  const auto checked = [&](const std::string& bias) {
    const FlowGraph graph = trace(
        "local f = sluice.flow{name='f', page=16} function f.cache(c) c.a = c.k:mean('token') c.b = c.v:mean('token') end "
        "function f.index(q, c) return sluice.cover{k = c.a, v = c.b, refine = 'none', tail = 16, bias = sluice.fill(" +
            bias + ", {'page'})} end return f",
        "f.lua");
    return check_against_reference(*device, graph, compile(graph).plan);
  };
  EXPECT_EQ(checked("3e38"), std::nullopt);
  EXPECT_EQ(checked("-3e38"), std::nullopt);
  EXPECT_NE(checked("math.huge").value_or("").find("NaN in exact arithmetic"), std::string::npos);
}

TEST(Covers, ABiasMayBeAStateAsTheLastStepSavedIt) { testing::expect_bias_as_loaded(*create_cpu_device({1})); }

}  // namespace
}  // namespace sluice::test
