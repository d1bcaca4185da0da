#include <gtest/gtest.h>

#include "kernels/cpu/flow/compiled_flow.h"
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
  for (const char* name : {"scripting/flows/block_topk", "scripting/flows/quest", "scripting/flows/double_sparse",
                           "scripting/flows/nsa_topk", "scripting/flows/h2o", "scripting/flows/random",
                           "scripting/flows/streaming", "tests/flows/okay/best_tokens", "tests/flows/okay/share_of_weights"}) {
    FlowGraph graph = trace_file(std::string(SLUICE_SOURCE_DIR) + "/" + name + ".lua");
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

/// The flow's scratch for `pages` pages on a device of `threads` threads: how many may run it, and what each of them takes.
std::pair<int, size_t> scratch_of(const FlowGraph& graph, int threads, int pages) {
  const cpu::DeviceFlow flow(cpu::compile_flow(compile(graph).plan, 1, 1), threads, std::make_shared<cpu::FlowRegistry>());
  flow.ensure(pages);
  return {flow.threads(), flow.scratch(0).bytes() + 2 * static_cast<size_t>(pages) * sizeof(int32_t)};
}

TEST(FlowMemory, DoesNotGrowWithTheThreadsOfAMachine) {
  const FlowGraph wide = trace(R"(
    local flow = sluice.flow{name = "wide"}
    function flow.cache(c)
      c.m = c.k:mean("token")
    end
    function flow.index(q, c)
      local scores = (q * c.m):relu()
      local sharp = (scores * scores:max("page")):sum("dim"):max("head")
      return sluice.topk(sharp - sharp:mean("page"), {k = 4})
    end
    return flow
  )",
                               "wide.lua");
  const FlowGraph quest = trace_file(std::string(SLUICE_SOURCE_DIR) + "/scripting/flows/quest.lua");
  for (const int threads : {1, 2, 12, 128}) {
    for (const int pages : {16, 512, 4096}) {
      const auto [running, bytes] = scratch_of(wide, threads, pages);
      EXPECT_TRUE(running == 1 || running * bytes <= cpu::kMostScratchBytes) << running << " threads, " << bytes << " bytes each";
      EXPECT_TRUE(running == threads || (running + 1) * bytes > cpu::kMostScratchBytes) << running << " of " << threads;
      EXPECT_EQ(scratch_of(quest, threads, pages).first, threads);
    }
  }
  EXPECT_LT(scratch_of(wide, 128, 4096).first, 128) << "the flow is to be too wide for all threads";
}

TEST(FlowMemory, IsWhatTheFlowsOwnEngineReserved) {
  const auto device = create_cpu_device({1});
  const FlowGraph quest = trace_file(std::string(SLUICE_SOURCE_DIR) + "/scripting/flows/quest.lua");
  const auto pages_with = [&](int pages) {
    const auto flow = device->compile(compile(quest).plan, 1, 1);
    device->reserve({.rows = 1, .sequences = 1, .pages_per_sequence = pages, .query_heads = 1, .kv_heads = 1, .head_dim = 64});
    return dynamic_cast<const cpu::DeviceFlow&>(*flow).max_pages();
  };
  EXPECT_EQ(pages_with(4096), 4096);
  EXPECT_EQ(pages_with(16), 16) << "whoever was here before";
}

/// A flow for whose scratch there is memory so many times.
class ScarceFlow final : public cpu::Flow {
 public:
  explicit ScarceFlow(int* left) : flow_(cpu::compile_flow(compile(quest()).plan, 1, 1)), left_(left) {}
  const Plan& plan() const override { return flow_->plan(); }
  std::unique_ptr<RequestState> create_state(int) const override { return nullptr; }
  std::unique_ptr<cpu::FlowScratch> create_scratch(int pages) const override {
    if ((*left_)-- <= 0) throw std::bad_alloc();
    return flow_->create_scratch(pages);
  }
  void refresh_page(const std::byte*, std::byte*, int, cpu::FlowScratch&) const override {}
  int select(const cpu::FlowRow&, cpu::FlowScratch&, int32_t*) const override { return 0; }
  cpu::SourcePages source_pages(size_t, const cpu::FlowRow&, cpu::FlowScratch&) const override { return {}; }
  void run_after(const cpu::FlowRow&, cpu::Ending, float*, cpu::FlowScratch&) const override {}
  float* prompt_masses(RequestState&, int, int, int) const override { return nullptr; }
  std::span<const uint32_t> selected_tokens(cpu::FlowScratch&) const override { return {}; }
  std::span<const cpu::SlotMove> evict(RequestState&, int, int, int, cpu::HeldTokens, std::span<const int32_t>,
                                       cpu::FlowScratch&) const override {
    return {};
  }

 private:
  static FlowGraph quest() { return trace_file(std::string(SLUICE_SOURCE_DIR) + "/scripting/flows/quest.lua"); }

  std::unique_ptr<cpu::Flow> flow_;
  int* left_;
};

TEST(FlowMemory, WhatIsThereStaysWhereMoreCannotBeHad) {
  int left = 3;
  const cpu::DeviceFlow flow(std::make_unique<ScarceFlow>(&left), 2, std::make_shared<cpu::FlowRegistry>());
  flow.ensure(10);
  EXPECT_THROW(flow.ensure(20), std::bad_alloc);
  EXPECT_EQ(flow.threads(), 2);
  EXPECT_EQ(flow.max_pages(), 10);
  EXPECT_GT(flow.scratch(1).bytes(), 0U);
}

}  // namespace
}  // namespace sluice::testing
