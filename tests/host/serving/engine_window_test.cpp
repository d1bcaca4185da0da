// Layers that keep, and see, only the last tokens, beside layers that keep all: through scheduler, prefix cache, preemption and
// attention, against a model in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "host/serving/engine.h"
#include "scripting/base/error.h"
#include "scripting/lua/trace.h"
#include "tests/host/serving/drawn_request.h"
#include "tests/host/transformer/tiny_model.h"

namespace sluice {
namespace {

class EngineWindows : public ::testing::Test {
 protected:
  EngineWindows() {
    tiny_.layers = 4;
    tiny_.windows = {{1, 1024}, {3, 1024}, {2, 21}};
    tiny_.draw();
    tiny_.write(directory_.path());
    device_ = create_cpu_device({2});
    model_ = load_model(directory_.path(), *device_);
  }

  EngineOptions options(int pages) const {
    EngineOptions options;
    options.kv = DataType::kF32;
    options.page = 16;
    options.pages = pages;
    options.max_batch = 6;
    options.max_pass_tokens = 96;
    options.run_ahead = true;
    options.windows = {{{3, 1}, 1024}, {{2}, 21}};
    return options;
  }

  Request request(int prompt, int max_tokens, int salt) const {
    return testing::drawn_request(tiny_.vocabulary, prompt, max_tokens, salt);
  }

  /// Logits [tokens, vocabulary] of all tokens of a result.
  std::vector<double> judge(const Request& request, const RequestResult& result) const {
    std::vector<int> tokens(request.prompt.begin(), request.prompt.end());
    tokens.insert(tokens.end(), result.tokens.begin(), result.tokens.end());
    return tiny_.logits(tokens);
  }

  /// Every generated token is the judge's best, or as good as that within rounding.
  void expect_greedy(const Request& request, const RequestResult& result) const {
    const std::vector<double> logits = judge(request, result);
    for (size_t i = 0; i < result.tokens.size(); ++i) {
      const auto row =
          logits.begin() + static_cast<ptrdiff_t>((request.prompt.size() + i - 1) * static_cast<size_t>(tiny_.vocabulary));
      const double best = *std::max_element(row, row + tiny_.vocabulary);
      EXPECT_LT(best - row[result.tokens[i]], 1e-3) << "token " << i << " of a prompt of " << request.prompt.size();
    }
  }

  testing::TinyModel tiny_;
  testing::TemporaryDirectory directory_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
};

TEST_F(EngineWindows, GiveTheLogitsOfAMaskedModel) {
  Engine engine(*device_, *model_, nullptr, options(300));
  std::vector<Request> requests;
  for (const int prompt : {1, 21, 22, 95, 1023, 1200}) {
    requests.push_back(request(prompt, 40, prompt));
    requests.back().want_logits = true;
    engine.submit(requests.back());
  }
  for (const RequestResult& result : engine.run_all()) {
    const Request& asked = requests[result.id - 1];
    const std::vector<double> wanted = judge(asked, result);
    ASSERT_EQ(result.logits.size(), wanted.size());
    double error = 0;
    for (size_t i = 0; i < wanted.size(); ++i) error = std::max(error, std::abs(result.logits[i] - wanted[i]));
    EXPECT_LT(error, 2e-3) << "a prompt of " << asked.prompt.size();
  }
  EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total) << "pages leaked";
}

TEST_F(EngineWindows, SharedCopiedAndPreemptedRequestsGetTheSameTokens) {
  Engine engine(*device_, *model_, nullptr, options(62));
  std::vector<Request> requests;
  const Request common = request(1300, 1, 7);
  for (int i = 0; i < 10; ++i) {
    Request next = request(30 + 71 * i % 200, 90, i);
    if (i % 2 == 0) next.prompt.insert(next.prompt.begin(), common.prompt.begin(), common.prompt.begin() + 1100 + 16 * i);
    next.copy_prefix = i % 4 == 2;
    requests.push_back(next);
    engine.submit(next);
    if (i % 3 == 0) engine.step();
  }
  for (const RequestResult& result : engine.run_all()) expect_greedy(requests[result.id - 1], result);
  const EngineStats stats = engine.stats();
  EXPECT_GT(stats.prefix_hits, 300U);
  EXPECT_GT(stats.preemptions, 0U);
  EXPECT_EQ(stats.pages_free, stats.pages_total) << "pages leaked";
}

TEST_F(EngineWindows, WhatIsForgottenIsFree) {
  // Memory for 60 pages of all layers; the one layer that keeps all tokens has most of it once the others have forgotten.
  EngineOptions all = options(60);
  all.windows.clear();
  Engine dense(*device_, *model_, nullptr, all);
  const Request longest = request(1700, 20, 3);
  EXPECT_THROW(dense.submit(longest), InputError);
  EngineOptions windows = options(60);
  windows.windows = {{{1, 2, 3}, 21}};
  tiny_.windows = {{1, 21}, {2, 21}, {3, 21}};
  Engine engine(*device_, *model_, nullptr, windows);
  engine.submit(longest);
  const std::vector<RequestResult> results = engine.run_all();
  ASSERT_EQ(results.size(), 1U);
  expect_greedy(longest, results[0]);
}

TEST_F(EngineWindows, RefuseWhatTheyCannotKeep) {
  EngineOptions wrong = options(100);
  wrong.windows = {{{4}, 100}};
  EXPECT_THROW(Engine(*device_, *model_, nullptr, wrong), InputError);
  wrong.windows = {{{1}, 0}};
  EXPECT_THROW(Engine(*device_, *model_, nullptr, wrong), InputError);
  wrong.windows = {{{1}, 8}, {{1}, 16}};
  EXPECT_THROW(Engine(*device_, *model_, nullptr, wrong), InputError);
  Engine engine(*device_, *model_, nullptr, options(100));
  Request asks = request(20, 4, 1);
  asks.want_snapshot = true;
  EXPECT_THROW(engine.submit(asks), InputError);
}

TEST_F(EngineWindows, AreLeftAsTheyAreByAFlow) {
  constexpr const char* kStreaming = R"(
    local flow = sluice.flow { name = "streaming", page = 16, kv = "f32" }
    function flow.index(q, c) return sluice.window { first = 1, last = 2 } end
    return flow)";
  TraceOptions geometry;
  geometry.head_dim = tiny_.head_dim;
  geometry.group = tiny_.query_heads / tiny_.kv_heads;
  const Plan plan = compile(trace(kStreaming, "flow.lua", geometry)).plan;
  Engine engine(*device_, *model_, &plan, options(100));
  Engine without(*device_, *model_, nullptr, options(100));
  // So short that the flow reads all of it in the one layer that it runs in.
  const Request asked = request(40, 4, 1);
  for (Engine* each : {&engine, &without}) each->submit(asked);
  EXPECT_EQ(engine.run_all().at(0).tokens, without.run_all().at(0).tokens);
}

TEST_F(EngineWindows, OfTheModelNeedNoOption) {
  tiny_.rope_extra = R"(, "use_sliding_window": true, "sliding_window": 37, "layer_types":
                        ["full_attention", "sliding_attention", "sliding_attention", "full_attention"])";
  tiny_.write(directory_.path());
  const auto model = load_model(directory_.path(), *device_);
  EngineOptions plain = options(100);
  plain.windows.clear();
  Engine engine(*device_, *model, nullptr, plain);
  const Request asked = request(300, 30, 2);
  engine.submit(asked);
  tiny_.windows = {{1, 37}, {2, 37}};
  expect_greedy(asked, engine.run_all().at(0));
}

TEST_F(EngineWindows, RefuseAFlowThatWouldRunNowhere) {
  constexpr const char* kUpper = R"(
    local flow = sluice.flow { name = "upper", page = 16, kv = "f32", layers = { [0] = "full", rest = "sparse" } }
    function flow.index(q, c) return sluice.window { first = 1, last = 2 } end
    return flow)";
  TraceOptions geometry;
  geometry.head_dim = tiny_.head_dim;
  geometry.group = tiny_.query_heads / tiny_.kv_heads;
  const Plan plan = compile(trace(kUpper, "flow.lua", geometry)).plan;
  EXPECT_THROW(Engine(*device_, *model_, &plan, options(100)), InputError);
}

TEST_F(EngineWindows, InEveryLayerAreSeen) {
  EngineOptions every = options(100);
  every.windows = {{{0, 1, 3}, 37}, {{2}, 21}};
  tiny_.windows = {{0, 37}, {1, 37}, {2, 21}, {3, 37}};
  Engine engine(*device_, *model_, nullptr, every);
  std::vector<Request> requests;
  for (const int prompt : {1, 36, 37, 38, 300}) {
    requests.push_back(request(prompt, 60, prompt));
    engine.submit(requests.back());
  }
  for (const RequestResult& result : engine.run_all()) expect_greedy(requests[result.id - 1], result);
}

TEST_F(EngineWindows, GoFromEngineToEngineWhereAllIsKept) {
  EngineOptions keeps = options(200);
  keeps.keep_all = true;
  keeps.prefix_cache = false;
  const Request asked = request(400, 30, 6);
  Request prefill = asked;
  prefill.max_tokens = 1;
  prefill.want_snapshot = true;
  Engine first(*device_, *model_, nullptr, keeps);
  first.submit(prefill);
  Request known = asked;
  known.snapshot = first.run_all().at(0).snapshot;
  keeps.page = 64;
  Engine second(*device_, *model_, nullptr, keeps);
  second.submit(known);
  expect_greedy(asked, second.run_all().at(0));
}

TEST_F(EngineWindows, LeaveOtherLayersToAFlow) {
  constexpr const char* kFirstLayer = R"(
    local flow = sluice.flow { name = "first", page = 16, kv = "f32", layers = { [0] = "sparse", rest = "full" } }
    function flow.cache(c) c.mid = c.k:mean("token") end
    function flow.index(q, c) return sluice.topk(q:mean("head"):dot(c.mid), { k = 200, first = 1, last = 1 }) end
    return flow)";
  TraceOptions geometry;
  geometry.head_dim = tiny_.head_dim;
  geometry.group = tiny_.query_heads / tiny_.kv_heads;
  const Plan plan = compile(trace(kFirstLayer, "flow.lua", geometry)).plan;
  Engine engine(*device_, *model_, &plan, options(200));
  const Request asked = request(1200, 20, 5);  // fewer pages than the flow selects: it attends to all
  engine.submit(asked);
  expect_greedy(asked, engine.run_all().at(0));
}

}  // namespace
}  // namespace sluice
