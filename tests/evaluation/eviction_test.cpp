// Who leaves a cache that forgets, on the CPU against the reference, among other heads, layers and requests.
#include <gtest/gtest.h>

#include "agents/evaluation/numerical.h"
#include "scripting/lua/trace.h"
#include "tests/support/random_flow.h"
#include "tests/support/same_victims.h"

namespace sluice::test {
namespace {

TEST(Eviction, RandomFlowsAgreeWithTheReferenceOnTheCpu) {
  const auto device = create_cpu_device({2});
  int judged = 0;
  for (uint64_t seed = 0; judged < 40; ++seed) {
    FlowGraph graph;
    try {
      graph = sluice::testing::random_eviction(seed);
    } catch (const FlowError&) {
      continue;  // a pattern that keeps more than the budget
    }
    if (graph.geometry.head_dim % 8 != 0) continue;  // the CPU attends in no other heads
    ++judged;
    EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt) << "seed " << seed;
  }
}

FlowGraph evicting(const std::string& score, const std::string& options, const std::string& top = "") {
  return trace("local f = sluice.flow{name='f', page=16" + top +
                   "} function f.cache(c) c.heavy = sluice.cfill(0, {'token'}) end function f.after(q, c, mass) "
                   "local heavy = c.heavy + mass:sum('head') c.heavy:save(heavy) sluice.evict(" +
                   score + ", {budget = 64, " + options + "}) end return f",
               "f.lua");
}

TEST(Eviction, BudgetsBeyondWhatTheReferenceAffordsAreJudged) {
  const auto device = create_cpu_device({1});
  FlowGraph graph = evicting("heavy", "keep = sluice.pattern.window(20)");
  graph.eviction->budget = 1 << 30;
  EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt);
}

TEST(Eviction, EveryRuleAgreesWithTheReference) {
  const auto device = create_cpu_device({1});
  for (const char* options : {"first = 4, recent = 8", "recent = 64", "first = 63", "compress = 'prompt'", "chunk = 1",
                              "chunk = 64", "first = 10, recent = 30, chunk = 20", "keep = sluice.pattern.window(20)",
                              "keep = sluice.pattern.sink(3) | sluice.pattern.window(30), compress = 'prompt', recent = 5"}) {
    for (const char* top : {"", ", prompt_mass = 5", ", prompt_mass = 1"}) {
      const FlowGraph graph = evicting("heavy", options, top);
      EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt) << options << top;
    }
  }
}

TEST(Eviction, TheSameTokensLeaveOver2000Steps) {
  const auto device = create_cpu_device({1});
  testing::expect_same_victims(*device, "f32", 16);
}

// A device that lets others leave is found.
TEST(Eviction, OthersAreFound) {
  const auto device = create_cpu_device({1});
  const FlowGraph wanted = evicting("heavy", "first = 4, recent = 8, chunk = 20");
  EXPECT_EQ(check_against_reference(*device, wanted, compile(wanted).plan), std::nullopt);
  for (const auto& [score, options] : {std::pair("-heavy", "first = 4, recent = 8, chunk = 20"),
                                       {"heavy", "first = 3, recent = 8, chunk = 20"},
                                       {"heavy", "first = 4, recent = 2, chunk = 20"},
                                       {"mass:sum('head')", "first = 4, recent = 8, chunk = 20"}}) {
    EXPECT_TRUE(check_against_reference(*device, wanted, compile(evicting(score, options)).plan).has_value()) << score << options;
  }
}

}  // namespace
}  // namespace sluice::test
