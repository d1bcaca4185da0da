#include <gtest/gtest.h>

#include "agents/evaluation/prefilled.h"
#include "scripting/graph/plan.h"
#include "scripting/lua/trace.h"

namespace sluice::test {
namespace {

/// The engine's part in the numbers that a flow draws.
uint64_t seed_of(const std::string& name, const std::string& index) {
  const Plan plan =
      compile(
          trace("local f = sluice.flow{name='" + name + "', page=8} function f.index(q, c) " + index + " end return f", "f.lua"))
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

}  // namespace
}  // namespace sluice::test
