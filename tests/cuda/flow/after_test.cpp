#include <gtest/gtest.h>

#include "agents/evaluation/numerical.h"
#include "kernels/cuda/codegen/refusal.h"
#include "scripting/lua/trace.h"
#include "tests/cuda/gpu.h"
#include "tests/support/random_flow.h"
#include "tests/support/same_victims.h"
#include "tests/support/source_path.h"

// Flows that look back: what attention gave, and tokens that leave.

namespace sluice::testing {
namespace {

class CudaAfter : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (runs()) device_ = create_device("cuda");
  }

  /// What is wrong, if anything is. Flows that GPUs do not take are left out: `judged` counts the others.
  void judge(const FlowGraph& graph, const std::string& what) {
    const Plan plan = compile(graph).plan;
    if (cuda::codegen::refusal_of(plan)) return;
    ++judged_;
    EXPECT_EQ(check_against_reference(*device_, graph, plan).value_or(""), "") << what;
  }

  std::unique_ptr<Device> device_;
  int judged_ = 0;
};

TEST_F(CudaAfter, RandomFlowsAgreeWithTheReference) {
  for (uint64_t seed = 0; judged_ < 60; ++seed) {
    const FlowGraph graph = random_after(seed);
    if (!graph.saves_in(Stage::kAfter)) continue;
    judge(graph, "seed " + std::to_string(seed));
  }
}

TEST_F(CudaAfter, RandomFlowsThatEvictAgreeWithTheReference) {
  for (uint64_t seed = 0; judged_ < 60; ++seed) {
    try {
      judge(random_eviction(seed), "seed " + std::to_string(seed));
    } catch (const FlowError&) {
      continue;  // a pattern that keeps more than the budget
    }
  }
}

TEST_F(CudaAfter, RandomSelectionsOfTokensAgreeWithTheReference) {
  for (uint64_t seed = 0; judged_ < 80; ++seed) judge(random_tokens(seed), "seed " + std::to_string(seed));
}

TEST_F(CudaAfter, SelectionsOfTokensJoinWithEverythingElse) {
  const char* const parts[] = {"", ", sluice.topk(q:dot(c.m):max('head'), { k = 2, last = 1 })",
                               ", sluice.window { first = 1, last = 1 }", ", sluice.pattern.window(20)",
                               ", sluice.topp(q:dot(c.m):max('head'):exp(), { p = 0.7, first = 1 })"};
  for (const int page : {8, 16, 32, 128}) {
    for (const char* part : parts) {
      for (const char* pattern : {"", "flow.pattern = sluice.pattern.sink(3) | sluice.pattern.window(150)"}) {
        const std::string chosen = "sluice.topk_tokens(q:dot(c.k):max('head'), { k = 40, first = 3, last = 5 })";
        const std::string index = std::string(part).empty() ? chosen : "sluice.union(" + chosen + part + ")";
        const std::string source = "local flow = sluice.flow { name = 'test', page = " + std::to_string(page) + " }\n" + pattern +
                                   "\nfunction flow.cache(c) c.m = c.k:mean('token') end\nfunction flow.index(q, c) return " +
                                   index + " end\nreturn flow\n";
        judge(trace(source, "test.lua"), std::to_string(page) + part + pattern);
      }
    }
  }
  EXPECT_EQ(judged_, 40);
}

FlowGraph evicting(const std::string& options, const std::string& top, int head_dim, int group) {
  TraceOptions given;
  given.head_dim = head_dim;
  given.group = group;
  return trace("local f = sluice.flow{name='f'" + top +
                   "} function f.cache(c) c.heavy = sluice.cfill(0, {'token'}) end function f.after(q, c, mass) "
                   "local heavy = c.heavy + mass:sum('head') c.heavy:save(heavy) sluice.evict(heavy, {budget = 128, " +
                   options + "}) end return f",
               "f.lua", given);
}

TEST_F(CudaAfter, EveryRuleOfEvictionAgreesWithTheReference) {
  for (const char* options : {"first = 4, recent = 8", "recent = 128", "first = 127", "compress = 'prompt'", "chunk = 1",
                              "chunk = 128", "first = 10, recent = 30, chunk = 20", "keep = sluice.pattern.window(20)",
                              "keep = sluice.pattern.sink(3) | sluice.pattern.window(30), compress = 'prompt', recent = 5"}) {
    for (const char* top : {", page = 16", ", page = 8, prompt_mass = 5", ", page = 128, prompt_mass = 1"}) {
      judge(evicting(options, top, 64, 4), std::string(options) + top);
    }
  }
  EXPECT_EQ(judged_, 27);
}

TEST_F(CudaAfter, HeadsAndTypesOfEveryKindAgreeWithTheReference) {
  for (const char* kv : {"bf16", "e4m3", "e5m2"}) {
    for (const auto& [head_dim, group] : {std::pair{64, 1}, {64, 3}, {128, 4}, {128, 16}, {256, 7}}) {
      judge(evicting("recent = 20", std::string(", page = 16, prompt_mass = 30, kv = '") + kv + "'", head_dim, group),
            std::string(kv) + ", heads of " + std::to_string(head_dim) + ", group " + std::to_string(group));
    }
  }
  EXPECT_EQ(judged_, 15);
}

TEST_F(CudaAfter, TheSameTokensLeaveOver2000Steps) { expect_same_victims(*device_, "bf16", 64); }

TEST_F(CudaAfter, ShippedFlowsAgreeWithTheReference) {
  for (const char* name : {"eviction/h2o_tokens", "eviction/snapkv", "eviction/tova", "eviction/keydiff", "eviction/rocket",
                           "eviction/h2o_quest", "masses/heavy_tokens"}) {
    for (const auto& [head_dim, group] : {std::pair{64, 2}, {128, 4}}) {
      TraceOptions options;
      options.head_dim = head_dim;
      options.group = group;
      judge(trace_file(source_path(std::string("scripting/flows/") + name + ".lua"), options), name);
    }
  }
  EXPECT_EQ(judged_, 14);
}

}  // namespace
}  // namespace sluice::testing
