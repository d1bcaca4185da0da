#include <gtest/gtest.h>

#include "agents/evaluation/prefilled.h"
#include "scripting/graph/plan.h"
#include "scripting/lua/trace.h"

namespace sluice::test {
namespace {

/// The engine's part in the numbers that a flow draws.
uint64_t seed_of(const std::string& name, const std::string& index, const std::string& cache = {}) {
  const Plan plan = compile(trace("local f = sluice.flow{name='" + name + "', page=8} function f.cache(c) " + cache +
                                      " end function f.index(q, c) " + index + " end return f",
                                  "f.lua"))
                        .plan;
  PrefilledPrompt prompt;
  prompt.tokens = {1, 2, 3};
  ModelConfig config;
  config.layers = 2;
  config.kv_heads = 1;
  config.query_heads = 1;
  config.head_dim = plan.graph.geometry.head_dim;
  return engine_options({prompt}, config, &plan).seed;
}

TEST(Draws, FollowFromWhatAFlowComputes) {
  const std::string one = "return sluice.threshold(sluice.random(), {above=0.5})";
  const uint64_t seed = seed_of("one", one);
  EXPECT_EQ(seed_of("one", one), seed);
  EXPECT_EQ(seed_of("renamed", one), seed) << "another name buys no other numbers";
  EXPECT_EQ(seed_of("one", "local unused = sluice.random() * 2 -- nothing\n" + one), seed);
  EXPECT_NE(seed_of("one", "return sluice.threshold(sluice.random(), {above=0.50000001})"), seed);
  EXPECT_NE(seed_of("one", "return sluice.threshold(sluice.random() * 2, {above=0.5})"), seed);
}

TEST(Draws, DoNotFollowFromNamesOfFieldsAndStates) {
  const auto flow = [](const std::string& field, const std::string& state) {
    return seed_of("f",
                   "local x = sluice.load('" + state + "', {axes={}, init=1}) sluice.save('" + state +
                       "', x * 2) return sluice.topk(c." + field + ":mean('dim') * sluice.random() * x, {k=1})",
                   "c." + field + " = c.k:mean('token')");
  };
  const uint64_t seed = flow("means", "count");
  EXPECT_EQ(flow("averages", "count"), seed);
  EXPECT_EQ(flow("means", "number"), seed);
}

}  // namespace
}  // namespace sluice::test
