// Flows that select tokens, or pages by what they weigh, on the CPU against the reference, among other heads, layers and
// requests.
#include <gtest/gtest.h>

#include "agents/evaluation/numerical.h"
#include "scripting/lua/trace.h"
#include "tests/support/random_flow.h"

namespace sluice::test {
namespace {

TEST(SelectedTokens, RandomFlowsAgreeWithTheReferenceOnTheCpu) {
  const auto device = create_cpu_device({2});
  int judged = 0;
  for (uint64_t seed = 1000; judged < 30; ++seed) {
    const FlowGraph graph = sluice::testing::random_tokens(seed);
    if (graph.geometry.head_dim % 8 != 0) continue;  // the CPU attends in no other heads
    ++judged;
    EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt) << "seed " << seed;
  }
}

FlowGraph flow_of(const std::string& index, const std::string& top = "", const std::string& after = "") {
  return trace("local p = sluice.pattern local f = sluice.flow{name='f', page=16} " + top +
                   " function f.cache(c) c.m = c.k:mean('token') c.seen = sluice.cfill(0, {'token'}) end function f.index(q, c) "
                   "local s = q:dot(c.k):max('head') + c.seen return " +
                   index + " end function f.after(q, c, mass) c.seen:save(c.seen * 0.5 + mass:sum('head')) " + after +
                   " end return f",
               "f.lua");
}

TEST(SelectedTokens, JoinWithEverythingElse) {
  const auto device = create_cpu_device({1});
  const std::string best = "sluice.topk_tokens(s, {k = 40, first = 3, last = 9})";
  for (const auto& [index, top, after] :
       {std::tuple<std::string, std::string, std::string>{best, "", ""},
        {"sluice.union(" + best + ", sluice.window{first = 1, last = 2})", "", ""},
        {"sluice.union(" + best + ", sluice.topk(q:dot(c.m):max('head'), {k = 2}), sluice.topk_tokens(-s, {k = 5, last = 1}))",
         "", ""},
        {"sluice.union(" + best + ", p.strided(20, 64))", "", ""},
        {"sluice.topk_tokens(s, {ratio = 1 / 8})", "", ""},
        {best, "", "sluice.evict(c.seen, {budget = 100, recent = 8})"}}) {
    const FlowGraph graph = flow_of(index, top, after);
    EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt) << index << top << after;
  }
}

// A device that selects others is found.
TEST(SelectedTokens, OthersAreFound) {
  const auto device = create_cpu_device({1});
  const FlowGraph wanted = flow_of("sluice.topk_tokens(s, {k = 40, last = 9})");
  EXPECT_EQ(check_against_reference(*device, wanted, compile(wanted).plan), std::nullopt);
  for (const char* other : {"sluice.topk_tokens(s, {k = 41, last = 9})", "sluice.topk_tokens(s, {k = 40, last = 8})",
                            "sluice.topk_tokens(-s, {k = 40, last = 9})"}) {
    EXPECT_TRUE(check_against_reference(*device, wanted, compile(flow_of(other)).plan).has_value()) << other;
  }
}

TEST(TopP, AgreesAndOthersAreFound) {
  const auto device = create_cpu_device({1});
  const auto flow = [](const std::string& options) {
    return trace(
        "local f = sluice.flow{name='f', page=16} function f.cache(c) c.m = c.k:mean('token') end function f.index(q, c) "
        "return sluice.topp((q:dot(c.m) / 8):softmax('page'):mean('head'), {" +
            options + "}) end return f",
        "f.lua");
  };
  const FlowGraph wanted = flow("p = 0.8, last = 2");
  EXPECT_EQ(check_against_reference(*device, wanted, compile(wanted).plan), std::nullopt);
  for (const char* options : {"p = 1", "p = 0.01", "p = 0.5, first = 1, max = 4", "p = 0.9, max = 1"}) {
    const FlowGraph each = flow(options);
    EXPECT_EQ(check_against_reference(*device, each, compile(each).plan), std::nullopt) << options;
  }
  for (const char* other : {"p = 0.7, last = 2", "p = 0.8, last = 1", "p = 0.8, last = 2, max = 9"}) {
    EXPECT_TRUE(check_against_reference(*device, wanted, compile(flow(other)).plan).has_value()) << other;
  }
}

}  // namespace
}  // namespace sluice::test
