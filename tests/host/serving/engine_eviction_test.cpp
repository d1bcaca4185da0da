// Flows whose tokens leave: prompts in any passes, preemption, and memory that is really given back.
#include <fmt/format.h>

#include <cstring>

#include "host/serving/kv_cache.h"
#include "scripting/graph/text.h"
#include "tests/host/serving/tiny_engine.h"

namespace sluice {
namespace {

class EngineEviction : public testing::TinyEngineTest {
 protected:
  /// Heavy hitters; `rule`: the options of evict, in Lua.
  Plan heavy(const std::string& rule, const std::string& top = "") const {
    return plan_of(fmt::format(R"(
      local flow = sluice.flow {{ name = "heavy", page = 8, kv = "f32" {} }}
      function flow.cache(c) c.heavy = sluice.cfill(0, {{ "token" }}) end
      function flow.after(q, c, mass)
        local heavy = c.heavy + mass:sum("head")
        c.heavy:save(heavy)
        sluice.evict(heavy, {{ {} }})
      end
      return flow)",
                               top, rule));
  }

  /// Pages of slots are selected by summaries that follow their tokens.
  Plan quest(const std::string& rule) const {
    return plan_of(fmt::format(R"(
      local flow = sluice.flow {{ name = "quest", page = 8, kv = "f32", prompt_mass = 4 }}
      function flow.cache(c)
        c.hi = c.k:max("token")
        c.lo = c.k:min("token")
      end
      function flow.index(q, c)
        return sluice.topk((q * c.hi):maximum(q * c.lo):sum("dim"):max("head"), {{ k = 2, last = 1 }})
      end
      function flow.after(q, c, mass) sluice.evict(mass:max("head"), {{ {} }}) end
      return flow)",
                               rule));
  }

  RequestResult alone(const Plan* plan, Request asked, const EngineOptions& told) const {
    asked.want_logits = true;
    Engine engine(*device_, *model_, plan, told);
    engine.submit(std::move(asked));
    return engine.run_all().at(0);
  }

  static bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }
};

TEST_F(EngineEviction, PromptsGiveTheSameInAnyPassesAndCompany) {
  for (const Plan& plan : {heavy("budget = 40, first = 2, recent = 6"), heavy("budget = 40, chunk = 40"),
                           heavy("budget = 33, recent = 20, compress = 'prompt'"), quest("budget = 44, recent = 8, chunk = 12"),
                           heavy("budget = 48, keep = sluice.pattern.dilated(4, 3)", ", prompt_mass = 5")}) {
    SCOPED_TRACE(to_text(plan.graph));
    std::vector<float> first;
    for (const int rows : {8, 37, 64, 300}) {
      EngineOptions told = options(400);
      told.max_batch = 4;
      told.max_pass_tokens = rows;
      const RequestResult result = alone(&plan, request(150, 30), told);
      if (first.empty()) first = result.logits;
      EXPECT_TRUE(same_bits(result.logits, first)) << rows;
    }
    Engine engine(*device_, *model_, &plan, options(400));
    for (const int salt : {5, 0, 9}) {
      Request asked = request(150 - 7 * salt, 30, salt);
      asked.want_logits = true;
      engine.submit(std::move(asked));
    }
    for (const RequestResult& result : engine.run_all()) {
      EXPECT_TRUE(result.id != 2 || same_bits(result.logits, first)) << "in company";
    }
  }
}

TEST_F(EngineEviction, ABudgetThatNobodyExceedsIsDenseAttention) {
  const std::vector<float> dense = alone(nullptr, request(150, 30), options()).logits;
  for (const char* rule : {"budget = 500", "budget = 180, chunk = 60", "budget = 180, compress = 'prompt'"}) {
    const Plan plan = heavy(rule);
    EXPECT_TRUE(same_bits(alone(&plan, request(150, 30), options()).logits, dense)) << rule;
  }
  const Plan less = heavy("budget = 179");
  EXPECT_FALSE(same_bits(alone(&less, request(150, 30), options()).logits, dense)) << "otherwise this shows nothing";
}

TEST_F(EngineEviction, APromptThatIsCompressedAtItsEndIsComputedDensely) {
  const Plan plan = heavy("budget = 30, compress = 'prompt'");
  const std::vector<float> dense = alone(nullptr, request(150, 8), options()).logits;
  const std::vector<float> own = alone(&plan, request(150, 8), options()).logits;
  const size_t of_prompt = static_cast<size_t>(149) * static_cast<size_t>(tiny_.vocabulary);
  EXPECT_EQ(0, std::memcmp(dense.data(), own.data(), of_prompt * sizeof(float)));
  EXPECT_FALSE(same_bits(dense, own));
}

TEST_F(EngineEviction, ManyLongSequencesRunInTheMemoryOfTheirBudgets) {
  const Plan plan = heavy("budget = 40, first = 2, recent = 8");
  EngineOptions told = options(8 * 5);  // pages of 8 tokens: eight budgets
  Engine engine(*device_, *model_, &plan, told);
  for (int salt = 0; salt < 8; ++salt) engine.submit(request(200 + 3 * salt, 40, salt));
  int most = 0;
  engine.on_token(
      [&](uint64_t, const GeneratedToken&) { most = std::max(most, engine.stats().pages_total - engine.stats().pages_free); });
  const std::vector<RequestResult> results = engine.run_all();
  EXPECT_EQ(engine.stats().preemptions, 0U);
  EXPECT_EQ(engine.stats().pages_total, 40);
  EXPECT_LE(most, 40);
  EXPECT_GT(most, 30) << "they ran together";
  EXPECT_EQ(engine.stats().pages_free, 40) << "pages leaked";
  for (const RequestResult& result : results) {
    EXPECT_EQ(
        result.tokens,
        alone(&plan, request(200 + 3 * static_cast<int>(result.id - 1), 40, static_cast<int>(result.id - 1)), options()).tokens);
  }
}

TEST_F(EngineEviction, WhatAPromptHadBesideTheBudgetGoesBack) {
  const Plan plan = heavy("budget = 40, compress = 'prompt'");
  Engine engine(*device_, *model_, &plan, options(64));
  engine.submit(request(200, 20));
  std::vector<int> used;
  engine.on_token(
      [&](uint64_t, const GeneratedToken&) { used.push_back(engine.stats().pages_total - engine.stats().pages_free); });
  engine.run_all();
  ASSERT_EQ(used.size(), 20U);
  for (size_t i = 1; i < used.size(); ++i) EXPECT_EQ(used[i], 5) << i;
  EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total);
}

TEST_F(EngineEviction, AfterAPreemptionTokensAreTheSame) {
  for (const Plan& plan :
       {heavy("budget = 60, first = 3"), heavy("budget = 60, compress = 'prompt'"), quest("budget = 60, recent = 4")}) {
    SCOPED_TRACE(to_text(plan.graph));
    std::vector<Request> requests;
    for (int salt = 0; salt < 5; ++salt) requests.push_back(request(30 + 9 * salt, 60, salt));
    Engine engine(*device_, *model_, &plan, options(20));
    for (const Request& each : requests) engine.submit(each);
    const std::vector<RequestResult> results = engine.run_all();
    EXPECT_GT(engine.stats().preemptions, 0U);
    EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total) << "pages leaked";
    for (const RequestResult& result : results) {
      EXPECT_EQ(result.tokens, alone(&plan, requests[result.id - 1], options()).tokens) << result.id;
    }
  }
}

TEST_F(EngineEviction, FullLayersKeepAllBesideThem) {
  const Plan plan = heavy("budget = 32", ", layers = {[0] = 'full', rest = 'sparse'}");
  Engine engine(*device_, *model_, &plan, options(200));
  for (int salt = 0; salt < 3; ++salt) engine.submit(request(150, 20, salt));
  for (const RequestResult& result : engine.run_all()) {
    EXPECT_EQ(result.tokens, alone(&plan, request(150, 20, static_cast<int>(result.id - 1)), options(300)).tokens);
  }
  EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total);
}

TEST_F(EngineEviction, WhatCannotBeIsRefused) {
  const Plan plan = heavy("budget = 40");
  EngineOptions shared = options();
  shared.cache = create_shared_cache(*device_, model_->config(), shared);
  EXPECT_THROW(Engine(*device_, *model_, &plan, shared), InputError);
  Engine engine(*device_, *model_, &plan, options());
  Request asked = request(50, 4);
  asked.want_snapshot = true;
  EXPECT_THROW(engine.submit(asked), InputError);
  Engine dense(*device_, *model_, nullptr, options());
  dense.submit(asked);
  Request given = request(50, 4);
  given.snapshot = dense.run_all().at(0).snapshot;
  EXPECT_THROW(engine.submit(given), InputError);
  const Plan tight = heavy("budget = 16, keep = sluice.pattern.fixed(8)");
  EXPECT_THROW(Engine(*device_, *model_, &tight, options()), FlowError);
}

TEST_F(EngineEviction, APoolBelowOneBudgetTakesNobody) {
  const Plan plan = heavy("budget = 80");
  Engine engine(*device_, *model_, &plan, options(6));
  EXPECT_THROW(engine.submit(request(100, 4)), InputError);
  engine.submit(request(40, 4));
  EXPECT_EQ(engine.run_all().size(), 1U);
}

}  // namespace
}  // namespace sluice
