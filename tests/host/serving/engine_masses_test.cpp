// Flows that read what attention gave: prompts in any chunks, preemption, prefixes and snapshots.
#include <fmt/format.h>

#include <cstring>

#include "tests/host/serving/tiny_engine.h"

namespace sluice {
namespace {

class EngineMasses : public testing::TinyEngineTest {
 protected:
  /// Heavy pages, of which a decaying sum of masses tells; `rows`: prompt_mass, in Lua.
  Plan heavy(const std::string& rows, const std::string& top = "") const {
    return plan_of(fmt::format(R"(
      local flow = sluice.flow {{ name = "heavy", page = 8, kv = "f32", prompt_mass = {} }}
      {}
      function flow.cache(c) c.heavy = sluice.cfill(0) end
      function flow.index(q, c) return sluice.topk(c.heavy, {{ k = 2, last = 1 }}) end
      function flow.after(q, c, mass) c.heavy:save(c.heavy * 0.75 + mass:sum("token", "head")) end
      return flow)",
                               rows, top));
  }

  /// The same by what all pages together had, which a pattern around it allows.
  Plan bounded(const std::string& pattern) const {
    return plan_of(fmt::format(R"(
      local p = sluice.pattern
      local flow = sluice.flow {{ name = "bounded", page = 8, kv = "f32" }}
      flow.pattern = {}
      function flow.cache(c) c.mid = c.k:mean("token") end
      function flow.index(q, c)
        local near = sluice.load("near", {{ axes = {{ "head" }}, init = 0 }})
        return sluice.topk((q * near):dot(c.mid):sum("head") + sluice.position() * near:sum("head"), {{ k = 2, last = 1 }})
      end
      function flow.after(q, c, mass)
        sluice.save("near", sluice.load("near") * 0.5 + (mass:sum("token") * (sluice.position() + 1)):sum("page"))
      end
      return flow)",
                               pattern));
  }

  RequestResult alone(const Plan& plan, Request asked, const EngineOptions& told) const {
    asked.want_logits = true;
    Engine engine(*device_, *model_, &plan, told);
    engine.submit(std::move(asked));
    return engine.run_all().at(0);
  }

  static bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }
};

TEST_F(EngineMasses, PromptsGiveTheSameInAnyChunksAndCompany) {
  for (const Plan& plan : {heavy("\"all\""), heavy("20"), heavy("\"none\""), bounded("p.sink(3) | p.window(40)"),
                           bounded("p.by_head{p.window(40), p.strided(5, 32)}")}) {
    SCOPED_TRACE(plan.graph.name);
    std::vector<float> first;
    for (const int rows : {8, 37, 64, 300}) {  // the last chunk of 37 is one row
      EngineOptions told = options(400);
      told.max_batch = 4;
      told.max_pass_tokens = rows;
      const RequestResult result = alone(plan, request(150, 20), told);
      if (first.empty()) first = result.logits;
      EXPECT_TRUE(same_bits(result.logits, first)) << rows;
    }
    Engine engine(*device_, *model_, &plan, options(400));
    for (const int salt : {5, 0, 9}) {
      Request asked = request(150 - 7 * salt, 20, salt);
      asked.want_logits = true;
      engine.submit(std::move(asked));
    }
    for (const RequestResult& result : engine.run_all()) {
      EXPECT_TRUE(result.id != 2 || same_bits(result.logits, first)) << "in company";
    }
  }
}

// Otherwise the tests here would show little.
TEST_F(EngineMasses, OfWhichRowsDecidesWhatIsSelected) {
  const std::vector<float> all = alone(heavy("\"all\""), request(150, 20), options()).logits;
  EXPECT_FALSE(same_bits(all, alone(heavy("3"), request(150, 20), options()).logits));
  EXPECT_FALSE(same_bits(all, alone(heavy("\"none\""), request(150, 20), options()).logits));
  EXPECT_TRUE(same_bits(all, alone(heavy("5000"), request(150, 20), options()).logits));
}

TEST_F(EngineMasses, AfterAPreemptionTokensAreTheSame) {
  for (const Plan& plan : {heavy("\"all\""), heavy("12"), bounded("p.sink(3) | p.window(200)")}) {
    SCOPED_TRACE(plan.graph.name);
    std::vector<Request> requests;
    for (int salt = 0; salt < 5; ++salt) requests.push_back(request(40 + 9 * salt, 40, salt));
    Engine engine(*device_, *model_, &plan, options(36));
    for (const Request& each : requests) engine.submit(each);
    const std::vector<RequestResult> results = engine.run_all();
    EXPECT_GT(engine.stats().preemptions, 0U);
    for (const RequestResult& result : results) {
      EXPECT_EQ(result.tokens, alone(plan, requests[result.id - 1], options()).tokens) << result.id;
    }
  }
}

TEST_F(EngineMasses, RowsThatCountAreNotTakenFromThePrefixCache) {
  constexpr int kPrompt = 101;
  for (const auto& [rows, most] :
       {std::pair{"\"all\"", 0}, {"12", (kPrompt - 1 - 12) / 8 * 8}, {"\"none\"", (kPrompt - 1) / 8 * 8}}) {
    for (const bool copies : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, copies {}", rows, copies));
      const Plan plan = heavy(rows);
      const std::vector<int32_t> wanted = alone(plan, request(kPrompt, 20), options()).tokens;
      Engine engine(*device_, *model_, &plan, options());
      engine.submit(request(kPrompt, 20));
      EXPECT_EQ(engine.run_all().at(0).tokens, wanted);
      Request again = request(kPrompt, 20);
      again.copy_prefix = copies;
      engine.submit(again);
      engine.submit(again);
      for (const RequestResult& result : engine.run_all()) {
        EXPECT_EQ(result.cached_tokens, most);
        EXPECT_EQ(result.tokens, wanted);
      }
      EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total) << "pages leaked";
    }
  }
}

TEST_F(EngineMasses, RowsThatCountAreNotTakenFromSnapshots) {
  EngineOptions dense = options();
  Engine prefill(*device_, *model_, nullptr, dense);
  Request asked = request(101, 1);
  asked.want_snapshot = true;
  prefill.submit(asked);
  const std::shared_ptr<const KvSnapshot> snapshot = prefill.run_all().at(0).snapshot;
  for (const auto& [rows, computed] : {std::pair{"\"all\"", 100U}, {"12", 12U}, {"\"none\"", 0U}}) {
    SCOPED_TRACE(rows);
    const Plan plan = heavy(rows);
    EngineOptions told = options();
    told.prefix_cache = false;
    Engine engine(*device_, *model_, &plan, told);
    Request given = request(101, 20);
    given.snapshot = snapshot;
    engine.submit(std::move(given));
    EXPECT_EQ(engine.run_all().at(0).tokens, alone(plan, request(101, 20), told).tokens);
    EXPECT_EQ(engine.stats().prefill_tokens, computed);
  }
}

TEST_F(EngineMasses, OneTokenIsAPromptWithoutRows) {
  for (const char* rows : {"\"all\"", "1", "\"none\""}) {
    const RequestResult result = alone(heavy(rows), request(1, 12), options());
    EXPECT_EQ(result.tokens.size(), 12U);
  }
}

TEST_F(EngineMasses, StatesThatDoNotFitAreRefused) {
  const Plan plan = heavy("\"all\"");
  EngineOptions told = options();
  told.state_bytes = 4096;
  Engine engine(*device_, *model_, &plan, told);
  EXPECT_THROW(engine.submit(request(200, 20)), InputError);
}

}  // namespace
}  // namespace sluice
