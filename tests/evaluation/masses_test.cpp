// What attention gives, as flows read it, on the CPU against the reference, among other heads, layers and requests.
#include <gtest/gtest.h>

#include "agents/evaluation/numerical.h"
#include "scripting/lua/trace.h"
#include "tests/support/random_flow.h"

namespace sluice::test {
namespace {

TEST(Masses, RandomFlowsThatReadThemAgreeWithTheReferenceOnTheCpu) {
  const auto device = create_cpu_device({2});
  int judged = 0;
  for (uint64_t seed = 0; judged < 70; ++seed) {
    const FlowGraph graph = sluice::testing::random_after(seed);
    const Plan plan = compile(graph).plan;
    if (graph.geometry.head_dim % 8 != 0 || plan.after.empty()) continue;  // the CPU attends in no other heads
    judged += plan.graph.reads_mass() ? 1 : 0;
    EXPECT_EQ(check_against_reference(*device, graph, plan), std::nullopt) << "seed " << seed;
  }
}

FlowGraph heavy(const std::string& after, const std::string& options = "", const std::string& top = "") {
  return trace(
      "local p = sluice.pattern local f = sluice.flow{name='f', page=16, kv='bf16'" + options + "} " + top +
          " function f.cache(c) c.a = c.k:mean('token') end function f.index(q, c) local near = sluice.load('near', {axes "
          "= {'head'}}) return sluice.topk((q * near):dot(c.a):sum('head') + sluice.position() * near:sum('head'), {k = 3, "
          "last = 1}) end function f.after(q, c, mass) sluice.save('near', " +
          after + ") end return f",
      "f.lua");
}

const std::string kPlaces = "(mass:sum('token') * (sluice.position() + 1)):sum('page')";

TEST(Masses, UnderAPatternAreThoseOfWhatIsSeen) {
  const auto device = create_cpu_device({1});
  for (const char* pattern : {"p.window(100)", "p.sink(3) | p.window(40)", "p.by_head{p.window(90), p.strided(20, 64)}"}) {
    const FlowGraph graph = heavy(kPlaces, ", prefill = 'dense'", std::string("f.pattern = ") + pattern);
    EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt) << pattern;
  }
}

// A device that gives something else is found: by what the next step selects.
TEST(Masses, OthersAreFound) {
  const auto device = create_cpu_device({1});
  const FlowGraph wanted = heavy(kPlaces);
  EXPECT_EQ(check_against_reference(*device, wanted, compile(wanted).plan), std::nullopt);
  for (const char* other :
       {"(mass:sum('token') * sluice.position()):sum('page')", "(mass:max('token') * (sluice.position() + 1)):sum('page')",
        "sluice.load('near') + (mass:sum('token') * (sluice.position() + 1)):sum('page')"}) {
    EXPECT_TRUE(check_against_reference(*device, wanted, compile(heavy(other)).plan).has_value()) << other;
  }
  // Nor may a device leave the prompt out.
  EXPECT_TRUE(check_against_reference(*device, wanted, compile(heavy(kPlaces, ", prompt_mass = 'none'")).plan).has_value());
}

}  // namespace
}  // namespace sluice::test
