// Engines of different flows on one cache: what one has computed of a prompt the others find, in the same pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "host/serving/kv_cache.h"
#include "scripting/base/error.h"
#include "tests/host/serving/tiny_engine.h"

namespace sluice {
namespace {

using testing::kQuest;
using testing::kStateful;

// Without fields.
constexpr const char* kStreaming = R"(
  local flow = sluice.flow { name = "streaming", page = 8, kv = "f32" }
  function flow.index(q, c)
    return sluice.window { first = 1, last = 2 }
  end
  return flow)";

/// The flow with `layers` given.
std::string with_layers(std::string flow, const std::string& layers) {
  return flow.insert(flow.find("kv ="), "layers = " + layers + ", ");
}

class SharedCache : public testing::TinyEngineTest {
 protected:
  SharedCache() {
    // The second has other fields, a layer that stays dense, and state.
    const std::string stateful = with_layers(kStateful, "{ [0] = \"full\", rest = \"sparse\" }");
    for (const std::string& source : {std::string(kQuest), stateful, std::string(kStreaming)}) plans_.push_back(plan_of(source));
  }

  /// The flows, and dense attention behind them.
  std::vector<const Plan*> flows() const {
    std::vector<const Plan*> flows;
    for (const Plan& plan : plans_) flows.push_back(&plan);
    flows.push_back(nullptr);
    return flows;
  }

  /// By an engine of its own.
  std::vector<int32_t> alone(const Plan* flow, const Request& wanted) const {
    Engine engine(*device_, *model_, flow, options());
    engine.submit(wanted);
    return engine.run_all().at(0).tokens;
  }

  /// Pages of a group that have so many users.
  static int pages_with(KvCache& cache, int group, int users) {
    const PoolMap& map = cache.pool().map();
    int count = 0;
    for (int slab = 0; slab < map.slabs(); ++slab) {
      const int32_t first = map.first_page(group, slab);
      for (int32_t page = first; page < first + map.slab_pages(group); ++page) {
        count += cache.pages().users(group, page) == users ? 1 : 0;
      }
    }
    return count;
  }

  std::shared_ptr<KvCache> shared(int pages = 256) const {
    return create_shared_cache(*device_, model_->config(), options(pages));
  }
  std::unique_ptr<Engine> engine(const std::shared_ptr<KvCache>& cache, const Plan* flow) const {
    EngineOptions wanted = options();
    wanted.cache = cache;
    return std::make_unique<Engine>(*device_, *model_, flow, wanted);
  }

  std::vector<Plan> plans_;
};

TEST_F(SharedCache, EnginesOfAllFlowsDecodeFromOnePrefill) {
  const auto cache = shared();
  std::vector<std::unique_ptr<Engine>> engines;
  for (const Plan* flow : flows()) engines.push_back(engine(cache, flow));
  const Request wanted = request(75, 20);
  for (size_t first = 0; first < engines.size(); ++first) {  // whoever is first prefills
    const Request next = request(75, 20, static_cast<int>(first));
    for (size_t i = 0; i < engines.size(); ++i) {
      const size_t which = (first + i) % engines.size();
      engines[which]->submit(next);
      const RequestResult result = engines[which]->run_all().at(0);
      EXPECT_EQ(result.tokens, alone(flows()[which], next)) << first << ", " << which;
      EXPECT_EQ(result.cached_tokens, i == 0 ? 0 : 72) << first << ", " << which;
    }
  }
  // Together they have computed each prompt once, but for what is behind its last full page.
  uint64_t prefilled = 0;
  for (const auto& each : engines) prefilled += each->stats().prefill_tokens;
  EXPECT_EQ(prefilled, engines.size() * (74 + (engines.size() - 1) * 2));
}

TEST_F(SharedCache, RequestsOfTwoEnginesHaveTheSamePages) {
  const auto cache = shared();
  const auto one = engine(cache, &plans_[0]);
  const auto other = engine(cache, &plans_[1]);
  one->submit(request(75, 40));
  for (int i = 0; i < 8; ++i) one->step();  // decoding
  one->settle();
  other->submit(request(75, 40));
  for (int i = 0; i < 4; ++i) other->step();
  other->settle();
  // Nine full pages of K and V; fields are nobody else's.
  EXPECT_EQ(pages_with(*cache, 0, 2), 9);
  EXPECT_EQ(pages_with(*cache, 1, 2), 0);
  EXPECT_EQ(pages_with(*cache, 2, 2), 0);
  EXPECT_EQ(one->stats().pages_free, other->stats().pages_free);
  const std::vector<int32_t> of_one = one->run_all().at(0).tokens;
  const std::vector<int32_t> of_other = other->run_all().at(0).tokens;
  EXPECT_EQ(of_one, alone(&plans_[0], request(75, 40)));
  EXPECT_EQ(of_other, alone(&plans_[1], request(75, 40)));
}

TEST_F(SharedCache, FieldsThatWereGivenUpAreComputedAnew) {
  const auto cache = shared();
  const auto dense = engine(cache, nullptr);
  dense->submit(request(200, 1));
  dense->run_all();
  for (int round = 0; round < 3; ++round) {
    const auto quest = engine(cache, &plans_[0]);  // its fields go with it
    EXPECT_EQ(cache->pool().map().has_group(1), true);
    for (int again = 0; again < 2; ++again) {
      Request copied = request(200, 20);
      copied.copy_prefix = again == 1;
      quest->submit(copied);
      const RequestResult result = quest->run_all().at(0);
      EXPECT_EQ(result.tokens, alone(&plans_[0], copied));
      EXPECT_EQ(result.cached_tokens, 192);
    }
  }
  EXPECT_EQ(cache->pool().map().has_group(1), false);
  EXPECT_EQ(cache->pages().uses(), 0);
}

TEST_F(SharedCache, SnapshotsGoToPagesAndFields) {
  Engine source(*device_, *model_, nullptr, options());
  Request asks = request(77, 1);
  asks.want_snapshot = true;
  source.submit(asks);
  const auto snapshot = source.run_all().at(0).snapshot;
  const auto cache = shared();
  for (const Plan& plan : plans_) {
    const auto each = engine(cache, &plan);
    Request imported = request(90, 16);
    imported.snapshot = snapshot;
    each->submit(imported);
    EXPECT_EQ(each->run_all().at(0).tokens, alone(&plan, request(90, 16)));
  }
}

// A pool that no two of the requests fit together: each waits, or gives way, and all end with their tokens.
TEST_F(SharedCache, EnginesThatCompeteForPagesAllEnd) {
  for (const int pages : {22, 28, 60}) {
    const auto cache = shared(pages);
    std::vector<std::unique_ptr<Engine>> engines;
    for (const Plan* flow : flows()) engines.push_back(engine(cache, flow));
    std::vector<std::vector<Request>> requests(engines.size());
    for (size_t e = 0; e < engines.size(); ++e) {
      for (int i = 0; i < 4; ++i) {
        requests[e].push_back(request(20 + 9 * i, 12 + 5 * i, i % 2));
        engines[e]->submit(requests[e].back());
      }
    }
    std::vector<std::vector<RequestResult>> results(engines.size());
    std::mt19937 random(static_cast<unsigned>(pages));
    const auto count = [&] {
      size_t all = 0;
      for (const auto& of_engine : results) all += of_engine.size();
      return all;
    };
    for (int turn = 0; turn < 20'000 && count() < 4 * engines.size(); ++turn) {
      const size_t which = random() % engines.size();
      engines[which]->step();
      for (RequestResult& result : engines[which]->take_finished()) results[which].push_back(std::move(result));
    }
    ASSERT_EQ(count(), 4 * engines.size()) << pages;
    uint64_t preemptions = 0;
    for (size_t e = 0; e < engines.size(); ++e) {
      std::sort(results[e].begin(), results[e].end(), [](const auto& a, const auto& b) { return a.id < b.id; });
      for (size_t i = 0; i < results[e].size(); ++i) {
        EXPECT_EQ(results[e][i].tokens, alone(flows()[e], requests[e][i])) << pages << ", " << e << ", " << i;
      }
      preemptions += engines[e]->stats().preemptions;
    }
    EXPECT_EQ(cache->pages().uses(), 0);
    EXPECT_LT(preemptions, 200U) << pages;
  }
}

// Layers that keep the last tokens beside the others, whose fields have pages of their own.
TEST_F(SharedCache, LayersWithAWindowAreShared) {
  const Plan plan = plan_of(with_layers(kQuest, "{ [1] = \"full\", rest = \"sparse\" }"));
  EngineOptions with_window = options(60);
  with_window.windows = {{{1}, 20}};
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(request(30 + 17 * i, 20, i / 2));
  std::vector<std::vector<int32_t>> wanted;
  for (const Plan* flow : {static_cast<const Plan*>(nullptr), &plan}) {
    for (const Request& each : requests) {
      Engine alone(*device_, *model_, flow, with_window);
      alone.submit(each);
      wanted.push_back(alone.run_all().at(0).tokens);
    }
  }
  EngineOptions shares = options();
  shares.cache = create_shared_cache(*device_, model_->config(), with_window);
  Engine dense(*device_, *model_, nullptr, shares);
  Engine quest(*device_, *model_, &plan, shares);
  for (Engine* engine : {&dense, &quest}) {
    for (const Request& each : requests) engine->submit(each);
  }
  for (bool busy = true; busy;) {
    const bool of_dense = dense.step();
    busy = quest.step() || of_dense;
  }
  size_t first = 0;
  for (Engine* engine : {&dense, &quest}) {
    std::vector<RequestResult> results = engine->take_finished();
    ASSERT_EQ(results.size(), requests.size());
    for (const RequestResult& result : results)
      EXPECT_EQ(result.tokens, wanted[first + result.id - 1]) << first << ", " << result.id;
    first += requests.size();
  }
  EXPECT_EQ(shares.cache->pages().uses(), 0);
}

TEST_F(SharedCache, SaysWhoHasThePages) {
  const auto cache = shared(24);
  const auto one = engine(cache, nullptr);
  const auto other = engine(cache, &plans_[0]);
  one->submit(request(70, 20));
  one->step();
  other->submit(request(70, 20, 1));
  EXPECT_FALSE(other->step());
  EXPECT_THROW(other->run_all(), InputError);
  one->run_all();
  EXPECT_EQ(other->run_all().size(), 1U);
}

// A flow that no layer runs has no fields.
TEST_F(SharedCache, TakesAFlowWithoutSparseLayers) {
  const auto cache = shared();
  const Plan plan = plan_of(with_layers(kQuest, "{ rest = \"full\" }"));
  const auto full = engine(cache, &plan);
  full->submit(request(40, 9));
  EXPECT_EQ(full->run_all().at(0).tokens, alone(nullptr, request(40, 9)));
  EXPECT_FALSE(cache->pool().map().has_group(1));
}

TEST_F(SharedCache, RefusesWhatCannotShareIt) {
  const auto cache = shared();
  const auto other_device = create_cpu_device({1});
  const auto other_model = load_model(directory_.path(), *other_device);
  EngineOptions elsewhere = options();
  elsewhere.cache = cache;
  EXPECT_THROW(Engine(*other_device, *other_model, nullptr, elsewhere), InputError);
  std::string text = kQuest;
  text.replace(text.find("page = 8"), 8, "page = 16");
  const Plan pages_of_16 = plan_of(text);
  EXPECT_THROW(engine(cache, &pages_of_16), InputError);
  // As many flows with fields as a pool has groups for, and no trace of one more.
  std::vector<std::unique_ptr<Engine>> engines;
  for (int i = 1; i < kMostGroups; ++i) engines.push_back(engine(cache, &plans_[0]));
  EXPECT_THROW(engine(cache, &plans_[0]), InputError);
  engines.erase(engines.begin() + 3);
  engines.push_back(engine(cache, &plans_[1]));
  engines.back()->submit(request(33, 9));
  EXPECT_EQ(engines.back()->run_all().at(0).tokens, alone(&plans_[1], request(33, 9)));
}

}  // namespace
}  // namespace sluice
