#include "agents/generation/flow_cost.h"

#include <gtest/gtest.h>

#include <string>

#include "scripting/lua/trace.h"
#include "tests/support/source_path.h"

namespace sluice::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

FlowGraph traced(const std::string& cache, const std::string& index) {
  return trace("local flow = sluice.flow{name='cost', page=8} function flow.cache(c) " + cache +
                   " end function flow.index(q, c) " + index + " end return flow",
               "cost.lua", {.head_dim = 64, .group = 4});
}

bool is_dear_on(const ModelConfig& config, const FlowGraph& graph, size_t pool_bytes) {
  EngineOptions options;
  options.pool_bytes = pool_bytes;
  options.max_batch = 16;
  options.max_pass_tokens = 256;
  return is_dear(compile(graph).plan, config, options);
}

ModelConfig mini() { return load_config(testing::source_path("host/models/mini").string()); }

ModelConfig large() {
  ModelConfig config = mini();
  config.layers = 28;
  config.kv_heads = 8;
  return config;
}

TEST(FlowCost, TellsWhatIsComputedForEachPageFromWhatIsNot) {
  const FlowGraph graph = traced("c.hi = c.k:max('token')", "return sluice.topk((q * 2 * c.hi):sum('dim'):max('head'), {k = 1})");
  const FlowCost cost = cost_of(graph);
  EXPECT_EQ(cost.cached_page, 2 * 8 * 64) << "keys and their maximum";
  EXPECT_EQ(cost.step, 4 * 64 + 1 + 4 * 64) << "the query, 2 and their product";
  EXPECT_EQ(cost.scored_page, 64 + 2 * 4 * 64 + 4 + 8) << "the field, product and sum, maximum, selection";
}

TEST(FlowCost, WhatReducesPagesIsForEachOfThem) {
  const FlowGraph graph =
      traced("c.hi = c.k:max('token')", "local s = q:dot(c.hi):max('head') return sluice.threshold(s, {above = s:mean('page')})");
  const FlowGraph without =
      traced("c.hi = c.k:max('token')", "local s = q:dot(c.hi):max('head') return sluice.threshold(s, {above = 0})");
  EXPECT_EQ(cost_of(graph).scored_page, cost_of(without).scored_page + 1);
}

// What stands for a page may be a state.
TEST(FlowCost, CountsSummariesThatAreStates) {
  TraceOptions options{.head_dim = 64, .group = 4};
  const auto scored = [&](const char* compressor) {
    options.parameters = {{"compressor", compressor}};
    return cost_of(trace_file(testing::source_path("scripting/flows/covers/luka_choices.lua").string(), options)).scored_page;
  };
  EXPECT_GE(scored("weighted"), scored("mean"));
  EXPECT_GT(scored("mean"), 2 * 4 * 64) << "each head has the key and the value of every page";
}

TEST(FlowCost, ShippedFlowsAreLightHoweverLargeThePool) {
  for (const char* name : {"block_topk", "double_sparse", "h2o", "nsa_topk", "quest", "random", "streaming"}) {
    const FlowGraph graph =
        trace_file(testing::source_path(std::string("scripting/flows/") + name + ".lua").string(), {.head_dim = 64, .group = 4});
    for (const size_t pool : {64 * kMiB, 4096 * kMiB, 65536 * kMiB}) EXPECT_FALSE(is_dear_on(mini(), graph, pool)) << name;
    EXPECT_FALSE(is_dear_on(large(), graph, 256 * kMiB)) << name;
  }
}

// Sixteen requests of one prompt that fills the pool score its pages sixteen times.
TEST(FlowCost, PagesThatAreSharedCountForEveryRequest) {
  const FlowGraph graph = traced("",
                                 "local x = sluice.fill(1, {'page', {'sub', 512}}) * sluice.position() for i = 1, 7 do "
                                 "x = x * 1.0001 end return sluice.topk(x:max('sub'), {k = 1})");
  const size_t pool = 256 * kMiB;
  const Plan plan = compile(graph).plan;
  const double heads = 28 * 8;
  const double in_pool = static_cast<double>(pool) / (static_cast<double>(plan.layout.bytes) * heads);
  ASSERT_LT(cost_of(graph).scored_page * heads * in_pool, 1 << 30) << "light, if each page is scored once";
  EXPECT_TRUE(is_dear_on(large(), graph, pool));
}

TEST(FlowCost, MillionsOfOperationsAreDearWhereverTheyAre) {
  const std::string sixty = " for i = 1, 60 do x = x * 1.0001 end ";
  const FlowGraph pages = traced("", "local x = sluice.fill(1, {'page', {'sub', 65536}}) * sluice.position()" + sixty +
                                         "return sluice.topk(x:max('sub'), {k = 1})");
  EXPECT_TRUE(is_dear_on(mini(), pages, 64 * kMiB));
  const FlowGraph step = traced("", "local x = q * sluice.fill(1, {{'sub', 256}})" + sixty +
                                        "return sluice.topk(sluice.position() * x:max('sub'):max('dim'):max('head'), {k = 1})");
  EXPECT_TRUE(is_dear_on(large(), step, 64 * kMiB));
  const FlowGraph cache = traced("local x = c.k * sluice.fill(1, {{'sub', 128}})" + sixty + "c.x = x:max('sub'):max('token')",
                                 "return sluice.topk(q:dot(c.x):max('head'), {k = 1})");
  EXPECT_TRUE(is_dear_on(large(), cache, 64 * kMiB));
}

}  // namespace
}  // namespace sluice::test
