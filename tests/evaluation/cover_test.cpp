// Attention to summaries of pages beside tokens, on the CPU, against the reference.
#include <gtest/gtest.h>

#include "agents/evaluation/numerical.h"
#include "scripting/lua/trace.h"
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

FlowGraph cover(const std::string& options) {
  return trace(
      "local f = sluice.flow{name='f', page=16, kv='bf16'} function f.cache(c) c.a = c.k:mean('token') c.b = "
      "c.v:mean('token') end function f.index(q, c) local s = q:dot(c.a):max('head') return sluice.cover{k = c.a, v = c.b, " +
          options + "} end return f",
      "f.lua");
}

// What a bias was loaded as it stays, although the state is saved before attention runs.
TEST(Covers, ABiasMayBeAStateAsTheLastStepSavedIt) {
  const auto device = create_cpu_device({1});
  const FlowGraph graph = trace(R"(
    local f = sluice.flow{name = "f", page = 16, kv = "bf16"}
    function f.cache(c) c.a = c.k:mean("token") c.b = c.v:mean("token") c.credit = sluice.cfill(0) end
    function f.index(q, c)
      c.credit:save(c.credit * 0.5 + sluice.position() * 0.125)
      return sluice.cover{k = c.a, v = c.b, refine = sluice.topk(q:dot(c.a):max("head"), {k = 2}), tail = 20, bias = c.credit}
    end
    return f)",
                                "f.lua");
  EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt);
}

// A device that weighs summaries otherwise is found.
TEST(Covers, AnotherCoverIsFound) {
  const auto device = create_cpu_device({1});
  const FlowGraph wanted = cover("refine = sluice.topk(s, {k = 3}), tail = 40");
  EXPECT_EQ(check_against_reference(*device, wanted, compile(wanted).plan), std::nullopt);
  for (const char* other : {"refine = sluice.topk(s, {k = 3}), tail = 40, bias = 'none'",
                            "refine = sluice.topk(s, {k = 3}), tail = 40, mass = 'renormalise'"}) {
    EXPECT_TRUE(check_against_reference(*device, wanted, compile(cover(other)).plan).has_value()) << other;
  }
}

}  // namespace
}  // namespace sluice::test
