// Flows with several programs: each layer runs its own, with pages and states of its own.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "scripting/graph/text.h"
#include "tests/host/serving/tiny_engine.h"

namespace sluice {
namespace {

class EngineVariants : public testing::TinyEngineTest {
 protected:
  EngineVariants() : TinyEngineTest(4) {}

  /// `programs`: a name, and the stages as functions of `it`.
  Plan flow_of(const std::string& layers, const std::vector<std::pair<std::string, std::string>>& programs,
               const std::string& options = "") const {
    std::string body;
    for (const auto& [name, stages] : programs) {
      body += name.empty() ? "do local it = flow\n" : fmt::format("do local it = flow.variant('{}')\n", name);
      body += stages + " end\n";
    }
    return plan_of(
        fmt::format("local flow = sluice.flow {{ name = 'v', page = 8, kv = 'f32', layers = {{ {} }} {} }}\n{} return flow",
                    layers, options, body));
  }

  std::vector<float> logits(const Plan& plan, int pages = 400, int rows = 64) const {
    EngineOptions told = options(pages);
    told.max_pass_tokens = rows;
    Engine engine(*device_, *model_, &plan, told);
    Request asked = request(150, 24);
    asked.want_logits = true;
    engine.submit(std::move(asked));
    return engine.run_all().at(0).logits;
  }

  static bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  static double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    double largest = a.size() == b.size() ? 0 : INFINITY;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) largest = std::max(largest, std::fabs(double{a[i]} - double{b[i]}));
    return largest;
  }

  const std::string quest_ = R"(
    function it.cache(c) c.hi = c.k:max('token') c.lo = c.k:min('token') end
    function it.index(q, c) return sluice.topk((q * c.hi):maximum(q * c.lo):sum('dim'):max('head'), {k = 2, first = 1, last = 1}) end
  )";
  const std::string stateful_ = R"(
    function it.cache(c) c.mid = c.k:mean('token') c.credit = sluice.cfill(0) end
    function it.index(q, c)
      local credit = c.credit * 0.5 + q:mean('head'):dot(c.mid)
      c.credit:save(credit)
      return sluice.topk(credit, {k = 2, first = 1, last = 1})
    end
  )";
  const std::string evicting_ = R"(
    function it.cache(c) c.heavy = sluice.cfill(0, {'token'}) end
    function it.after(q, c, mass)
      local heavy = c.heavy + mass:sum('head')
      c.heavy:save(heavy)
      sluice.evict(heavy, {budget = 40, recent = 8})
    end
  )";
};

TEST_F(EngineVariants, EqualOnesGiveTheBitsOfOne) {
  for (const std::string& stages : {quest_, stateful_, evicting_}) {
    const Plan one = flow_of("rest = 'sparse'", {{"", stages}});
    const Plan two = flow_of("[0] = 'a', [2] = 'a', rest = 'b'", {{"a", stages}, {"b", stages}});
    const Plan beside = flow_of("[1] = 'b', rest = 'sparse'", {{"", stages}, {"b", stages}});
    const std::vector<float> wanted = logits(one);
    EXPECT_TRUE(same_bits(logits(two), wanted)) << stages;
    EXPECT_TRUE(same_bits(logits(beside), wanted)) << stages;
  }
}

TEST_F(EngineVariants, EachLayerRunsItsOwn) {
  const Plan first = flow_of("[0] = 'sparse', rest = 'full'", {{"", quest_}});
  const Plan with_none = flow_of("[0] = 'a', [3] = 'b', rest = 'full'",
                                 {{"a", quest_}, {"b", "function it.index(q, c) return sluice.window{last = 10000} end"}});
  EXPECT_TRUE(same_bits(logits(first), logits(with_none))) << "one that selects all is dense attention";
  const Plan mixed = flow_of("[0] = 'a', [3] = 'b', rest = 'full'", {{"a", quest_}, {"b", stateful_}});
  EXPECT_FALSE(same_bits(logits(first), logits(mixed)));
}

TEST_F(EngineVariants, OfAllKindsGiveTheSameInAnyPassesAndAfterPreemptions) {
  const std::string near = "it.pattern = sluice.pattern.sink(2) | sluice.pattern.window(20)";
  const std::string beside =
      "function it.index(q, c) return sluice.union(sluice.window{last = 1}, sluice.pattern.strided(4, 16)) end";
  for (const Plan& plan : {flow_of("[0] = 'a', [1] = 'b', [2] = 'c', rest = 'sparse'",
                                   {{"", evicting_}, {"a", quest_}, {"b", near}, {"c", stateful_}}),
                           flow_of("[0] = 'a', [1] = 'b', rest = 'c'", {{"a", beside}, {"b", evicting_}, {"c", quest_}}),
                           flow_of("[0] = 'a', rest = 'b'", {{"a", evicting_}, {"b", stateful_}}, ", prompt_mass = 5")}) {
    SCOPED_TRACE(to_text(plan.graph));
    const std::vector<float> wanted = logits(plan);
    for (const int rows : {8, 37, 300}) {
      const std::vector<float> got = logits(plan, 400, rows);
      // Under a pattern sums have the order of slots, which chunks change.
      EXPECT_TRUE(plan.bounds_prompts() ? largest_difference(got, wanted) < 1e-3 : same_bits(got, wanted)) << rows;
    }
    std::vector<Request> requests;
    for (int salt = 0; salt < 5; ++salt) requests.push_back(request(40 + 9 * salt, 40, salt));
    Engine engine(*device_, *model_, &plan, options(40));
    for (const Request& each : requests) engine.submit(each);
    for (const RequestResult& result : engine.run_all()) {
      Engine alone(*device_, *model_, &plan, options(300));
      alone.submit(requests[result.id - 1]);
      EXPECT_EQ(result.tokens, alone.run_all().at(0).tokens) << result.id;
    }
    EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total) << "pages leaked";
  }
}

TEST_F(EngineVariants, BudgetsByLayerAreMemoryByLayer) {
  const auto budget = [](int tokens) {
    return fmt::format("function it.after(q, c, mass) sluice.evict(mass:sum('head'), {{budget = {}, chunk = 16}}) end", tokens);
  };
  const Plan plan = flow_of("[0] = 'wide', rest = 'narrow'", {{"wide", budget(80)}, {"narrow", budget(24)}});
  Engine engine(*device_, *model_, &plan, options(400));
  for (int salt = 0; salt < 4; ++salt) engine.submit(request(200, 20, salt));
  for (const RequestResult& result : engine.run_all()) EXPECT_EQ(result.tokens.size(), 20U);
  EXPECT_EQ(engine.stats().preemptions, 0U);
  EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total);
}

}  // namespace
}  // namespace sluice
