#include <gtest/gtest.h>

#include "scripting/lua/trace.h"
#include "tests/kernels/allocation_counter.h"
#include "tests/support/head_cache.h"

namespace sluice::testing {
namespace {

/// Allocations of decode steps over a page boundary.
int64_t allocations_of(const FlowGraph& graph) {
  const auto flow = cpu::compile_flow(compile(graph).plan, 1, 1);
  const Geometry& geometry = graph.geometry;
  constexpr int kTokens = 1000;
  constexpr int kSteps = 40;
  constexpr int kPages = 256;
  const auto scratch = flow->create_scratch(kPages);
  const auto state = flow->create_state(kPages);
  HeadCache cache(flow->plan().layout, kPages, 1);
  std::mt19937_64 random(1);
  const std::vector<float> tokens = random_numbers(static_cast<size_t>(kTokens + kSteps) * geometry.head_dim, random);
  const std::vector<float> query = random_numbers(static_cast<size_t>(geometry.group) * geometry.head_dim, random);
  const std::span<const float> all(tokens);
  cache.append(*flow, *scratch, all.first(kTokens * geometry.head_dim), all.first(kTokens * geometry.head_dim));
  std::vector<int32_t> selected(kPages);
  const int64_t before = allocations;
  for (int step = 0; step < kSteps; ++step) {
    const auto token = all.subspan(static_cast<size_t>(kTokens + step) * geometry.head_dim, geometry.head_dim);
    cache.append(*flow, *scratch, token, token);
    cpu::FlowRow row = cache.row(query.data());
    row.state = state.get();
    EXPECT_GT(flow->select(row, *scratch, selected.data()), 0);
  }
  return allocations - before;
}

TEST(FlowMemory, CountsAllocations) {
  const int64_t before = allocations;
  const std::vector<int> one(1000);
  EXPECT_EQ(allocations - before, one.empty() ? 0 : 1);
}

TEST(FlowMemory, DecodeStepsOfShippedFlowsAllocateNothing) {
  for (const char* name : {"block_topk", "quest", "double_sparse", "nsa_topk", "h2o", "random", "streaming"}) {
    FlowGraph graph = trace_file(std::string(SLUICE_SOURCE_DIR) + "/scripting/flows/" + name + ".lua");
    graph.layers = LayerChoice{};
    EXPECT_EQ(allocations_of(graph), 0) << name;
  }
}

TEST(FlowMemory, ExchangingStatesAllocatesNothing) {
  const FlowGraph graph = trace(R"(
    local flow = sluice.flow{name = "exchange"}
    function flow.cache(c)
      c.m = c.k:mean("token")
      c.a, c.b = sluice.cfill(0), sluice.cfill(1)
    end
    function flow.index(q, c)
      local x = sluice.load("x", {axes = {"head", "dim"}, init = 2})
      local y = sluice.load("y", {axes = {"head", "dim"}})
      sluice.save("x", y)
      sluice.save("y", x)
      c.a:save(c.b)
      c.b:save(c.a)
      return sluice.topk((q + x - y):dot(c.m):max("head") + c.a - c.b, {k = 4})
    end
    return flow
  )",
                                "exchange.lua");
  EXPECT_EQ(allocations_of(graph), 0);
}

}  // namespace
}  // namespace sluice::testing
