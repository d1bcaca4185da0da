// Engines whose flows look back: what attention gave, tokens that leave, and programs by layer.
#include <gtest/gtest.h>

#include "agents/bench/operation_profile.h"
#include "scripting/lua/trace.h"
#include "tests/cuda/device/engine_fixture.h"

namespace sluice::testing {
namespace {

class CudaEngineAfter : public CudaEngine {
 protected:
  Plan traced(const std::string& source) const {
    return compile(trace(source, "flow.lua", trace_options(model_->config()))).plan;
  }

  void expect_equal(const std::map<uint64_t, RequestResult>& got, const std::map<uint64_t, RequestResult>& wanted,
                    const std::string& what) const {
    ASSERT_EQ(got.size(), wanted.size());
    for (const auto& [id, result] : got) {
      EXPECT_EQ(result.tokens, wanted.at(id).tokens) << what << ", request " << id;
      EXPECT_EQ(result.logits, wanted.at(id).logits) << what << ", request " << id;
    }
  }
};

TEST_F(CudaEngineAfter, ReplayedStepsGiveTheSameBits) {
  for (const std::string flow :
       {"eviction/h2o_tokens", "eviction/snapkv", "eviction/rocket", "eviction/h2o_quest", "eviction/keydiff", "eviction/pyramid",
        "masses/heavy_tokens", "covers/luka_mixed", "covers/luka_near"}) {
    const Plan plan = plan_of(flow);
    OperationProfile one_by_one(*device_);
    one_by_one.start();
    const auto wanted = run(*device_, *model_, &plan, workload());
    one_by_one.stop();
    expect_equal(run(*device_, *model_, &plan, workload()), wanted, flow);
  }
}

TEST_F(CudaEngineAfter, EqualVariantsGiveTheBitsOfOne) {
  const std::string quest = R"(
    function it.cache(c) c.hi = c.k:max('token') c.lo = c.k:min('token') end
    function it.index(q, c) return sluice.topk((q * c.hi):maximum(q * c.lo):sum('dim'):max('head'), {k = 9, first = 1, last = 1}) end
  )";
  const std::string stateful = R"(
    function it.cache(c) c.mid = c.k:mean('token') c.credit = sluice.cfill(0) end
    function it.index(q, c)
      local credit = c.credit * 0.5 + q:mean('head'):dot(c.mid)
      c.credit:save(credit)
      return sluice.topk(credit, {k = 9, first = 1, last = 1})
    end
  )";
  const std::string evicting = R"(
    function it.cache(c) c.heavy = sluice.cfill(0, {'token'}) end
    function it.after(q, c, mass)
      local heavy = c.heavy + mass:sum('head')
      c.heavy:save(heavy)
      sluice.evict(heavy, {budget = 300, recent = 60})
    end
  )";
  for (const std::string& stages : {quest, stateful, evicting}) {
    const std::string top = "local flow = sluice.flow { name = 'v', page = 16";
    const Plan one = traced(top + " } local it = flow " + stages + " return flow");
    const Plan two = traced(top +
                            ", layers = { [0] = 'a', [2] = 'a', rest = 'b' } } for _, name in ipairs({'a', 'b'}) do "
                            "local it = flow.variant(name) " +
                            stages + " end return flow");
    expect_equal(run(*device_, *model_, &two, workload()), run(*device_, *model_, &one, workload()), stages);
  }
}

// A pass that computes prompts has 512 rows, which the budget holds.
TEST_F(CudaEngineAfter, ThirtyTwoLongSequencesRunInTheMemoryOfTheirBudgets) {
  constexpr int kSequences = 32;
  constexpr int kTokens = 16'000;
  constexpr int kPagesOfBudget = 512 / 16;
  const Plan flow = plan_of("eviction/h2o_tokens");
  EngineOptions options;
  options.pages = kSequences * kPagesOfBudget;
  options.max_batch = kSequences;
  options.max_pass_tokens = 512;
  Engine engine(*device_, *model_, &flow, options);
  EXPECT_EQ(engine.stats().pages_total, options.pages);
  for (int i = 0; i < kSequences; ++i) {
    Request request;
    for (int token = 0; token < kTokens; ++token) {
      request.prompt.push_back(static_cast<int32_t>(counter_uniform(static_cast<uint64_t>(i), static_cast<uint64_t>(token)) *
                                                    model_->config().vocabulary));
    }
    request.max_tokens = 50;
    request.ignore_eos = true;
    engine.submit(std::move(request));
  }
  int most_used = 0;
  while (engine.step()) most_used = std::max(most_used, engine.stats().pages_total - engine.stats().pages_free);
  EXPECT_EQ(engine.take_finished().size(), static_cast<size_t>(kSequences));
  EXPECT_EQ(engine.stats().preemptions, 0U);
  EXPECT_EQ(most_used, options.pages) << "all ran together";
  EXPECT_EQ(engine.stats().pages_free, options.pages) << "pages leaked";
}

}  // namespace
}  // namespace sluice::testing
