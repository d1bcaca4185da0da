// The serving loop on the GPU: what requests get does not depend on what runs beside or before them.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "host/serving/kv_cache.h"
#include "tests/cuda/device/engine_fixture.h"
#include "tests/support/greedy_tokens.h"

namespace sluice::testing {
namespace {

TEST_F(CudaEngine, GreedyRowsAloneGetWhatLogitsSay) { expect_greedy_tokens(*device_, *model_); }

// What the GPU embeds before the host knows it are the tokens that it has picked.
TEST_F(CudaEngine, RunningAheadGivesTheSameTokens) {
  for (const std::string flow : {"", "quest", "h2o"}) {
    const std::optional<Plan> plan = flow.empty() ? std::nullopt : std::optional(plan_of(flow));
    const auto engine_of = [&](bool ahead) {
      EngineOptions options;
      options.pages = 2000;
      options.max_batch = 4;
      options.max_pass_tokens = 300;
      options.prefix_cache = false;  // prompts cut elsewhere round elsewhere
      options.run_ahead = ahead;
      return std::make_unique<Engine>(*device_, *model_, plan ? &*plan : nullptr, options);
    };
    std::vector<Request> requests = workload();
    requests.resize(4);  // all run from the beginning, so that passes are the same
    for (Request& request : requests) request.want_logits = false;
    std::array<std::map<uint64_t, std::vector<int32_t>>, 2> tokens;
    for (const bool ahead : {false, true}) {
      const auto engine = engine_of(ahead);
      for (const Request& request : requests) engine->submit(request);
      for (const RequestResult& result : engine->run_all()) tokens.at(ahead ? 1 : 0)[result.id] = result.tokens;
    }
    EXPECT_EQ(tokens[0], tokens[1]) << flow;

    // Alone: what stops, or is cancelled, while a pass more is on its way, and what comes then.
    const auto alone = [&](const Request& request) {
      const auto engine = engine_of(false);
      engine->submit(request);
      return engine->run_all().at(0).tokens;
    };
    Request stopping = requests[2];
    stopping.stop_tokens = {alone(stopping).at(9)};
    const std::vector<int32_t> stopped = alone(stopping);
    const std::vector<int32_t> whole = alone(requests[3]);
    const auto engine = engine_of(true);
    for (int round = 0; round < 3; ++round) {
      engine->submit(stopping);
      EXPECT_EQ(engine->run_all().at(0).tokens, stopped) << flow;
      const uint64_t cancelled = engine->submit(requests[0]);
      for (int i = 0; i < 5 + round; ++i) engine->step();
      engine->cancel(cancelled);
      engine->submit(requests[3]);
      const std::vector<RequestResult> results = engine->run_all();
      EXPECT_EQ(results.at(1).tokens, whole) << flow;
    }
    EXPECT_EQ(engine->stats().pages_free, engine->stats().pages_total);
    engine->submit(requests[0]);
    for (int i = 0; i < 6; ++i) engine->step();  // the engine goes while a pass runs
  }
}

TEST_F(CudaEngine, EnginesTakeTurnsOnOneDevice) {
  // Each grows scratch that graphs of the other were made on, and goes on as if it were alone.
  const Plan quest = plan_of("quest");
  std::array<std::vector<int32_t>, 3> tokens;
  const auto engine_into = [&](size_t i, std::vector<int32_t>& out) {
    EngineOptions options;
    options.pages = 600;
    options.max_batch = static_cast<int>(2 + 3 * i);
    options.max_pass_tokens = static_cast<int>(64 << i);
    auto engine = std::make_unique<Engine>(*device_, *model_, i == 1 ? nullptr : &quest, options);
    engine->on_token([&out](uint64_t, const GeneratedToken& generated) { out.push_back(generated.token); });
    engine->submit(workload()[2]);
    return engine;
  };
  std::vector<std::unique_ptr<Engine>> engines;
  for (size_t i = 0; i < tokens.size(); ++i) {
    engines.push_back(engine_into(i, tokens.at(i)));
    for (int step = 0; step < 40; ++step) {
      for (size_t turn = 0; turn <= i; ++turn) engines[turn]->step();
    }
  }
  for (const auto& engine : engines) engine->run_all();
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<int32_t> alone;
    engine_into(i, alone)->run_all();
    EXPECT_EQ(tokens.at(i), alone) << i;
    EXPECT_EQ(tokens.at(i).size(), static_cast<size_t>(workload()[2].max_tokens));
  }
}

TEST_F(CudaEngine, TokensDoNotDependOnHowPromptsAreCutIntoManyRows) {
  const Plan quest = plan_of("quest");
  const Request request = workload()[2];
  for (const int rows : {128, 256}) {
    const Plan* const plan = rows == 128 ? nullptr : &quest;
    EXPECT_EQ(run(*device_, *model_, plan, {request}, rows).at(1).tokens, run(*device_, *model_, plan, {request}).at(1).tokens)
        << rows;
  }
}

// Up to 64 rows are multiplied by kernels of our own, more by cuBLASLt, which round differently: logits differ, and tokens once
// two logits nearly tie. Neither may be further from the CPU's logits than the other by more than chance: 0.0134 and 0.0137 of
// their size were measured.
TEST_F(CudaEngine, PromptsCutIntoFewRowsAreAsNearToTheCpu) {
  const std::unique_ptr<Device> cpu = create_device("cpu");
  const std::unique_ptr<Model> cpu_model = load_model(source_path("host/models/mini").string(), *cpu);
  Request request = workload()[2];
  request.max_tokens = 1;
  const Plan quest = plan_of("quest");
  for (const Plan* const plan : {static_cast<const Plan*>(nullptr), &quest}) {
    const auto logits = [&](Device& device, const Model& model, int rows) {
      return run(device, model, plan, {request}, rows).at(1).logits;
    };
    const std::vector<float> wanted = logits(*cpu, *cpu_model, 300);
    const auto error = [&](int rows) {
      const std::vector<float> got = logits(*device_, *model_, rows);
      if (got.size() != wanted.size()) return std::numeric_limits<double>::infinity();
      double squares = 0;
      double scale = 0;
      for (size_t i = 0; i < wanted.size(); ++i) {
        squares += std::pow(got[i] - wanted[i], 2);
        scale += std::pow(wanted[i], 2);
      }
      return std::sqrt(squares / scale);
    };
    const double few = error(64);
    const double many = error(300);
    EXPECT_LT(few, 1.1 * many);
    EXPECT_LT(many, 1.1 * few);
    EXPECT_LT(many, 0.02);
  }
}

// What one engine has computed of a prompt others decode from: the same pages of K and V, and fields of their own beside them.
TEST_F(CudaEngine, EnginesOfAllFlowsDecodeFromOnePrefill) {
  for (const std::vector<std::string>& flows : {std::vector<std::string>{"", "block_topk", "streaming", "random"},
                                                std::vector<std::string>{"quest", "h2o", "nsa_topk", "double_sparse", ""}}) {
    std::vector<std::optional<Plan>> plans;
    for (const std::string& flow : flows) plans.push_back(flow.empty() ? std::nullopt : std::optional(plan_of(flow)));
    EngineOptions options;
    options.page = plans[0] ? plans[0]->layout.page : plans[1]->layout.page;
    options.pages = 2000;
    options.max_batch = 4;
    options.max_pass_tokens = 300;
    const auto engine_of = [&](size_t i, const std::shared_ptr<KvCache>& cache) {
      EngineOptions own = options;
      own.cache = cache;
      return std::make_unique<Engine>(*device_, *model_, plans[i] ? &*plans[i] : nullptr, own);
    };
    // Of whole pages and the last token, so that nobody computes part of a page, which would round otherwise.
    Request request = workload()[2];
    request.want_logits = false;
    request.prompt.resize(16 * 60 + 1);
    request.max_tokens = 70;
    std::vector<std::vector<int32_t>> wanted;
    for (size_t i = 0; i < flows.size(); ++i) {
      const auto engine = engine_of(i, nullptr);
      engine->submit(request);
      wanted.push_back(engine->run_all().at(0).tokens);
    }
    const auto cache = create_shared_cache(*device_, model_->config(), options);
    std::vector<std::unique_ptr<Engine>> engines;
    for (size_t i = 0; i < flows.size(); ++i) engines.push_back(engine_of(i, cache));
    for (size_t i = 0; i < flows.size(); ++i) {
      engines[i]->submit(request);
      const RequestResult result = engines[i]->run_all().at(0);
      EXPECT_EQ(result.tokens, wanted[i]) << flows[i];
      EXPECT_EQ(result.cached_tokens, i == 0 ? 0 : 960) << flows[i];
      EXPECT_EQ(engines[i]->stats().prefill_tokens, i == 0 ? 960U : 0U) << flows[i];
    }
    // All at once, by turns, with fields of another engine that comes.
    engines[1] = engine_of(1, cache);
    for (const auto& engine : engines) engine->submit(request);
    std::vector<std::vector<int32_t>> got(flows.size());
    for (bool busy = true; busy;) {
      busy = false;
      for (const auto& engine : engines) busy = engine->step() || busy;
    }
    for (size_t i = 0; i < flows.size(); ++i) EXPECT_EQ(engines[i]->take_finished().at(0).tokens, wanted[i]) << flows[i];
    EXPECT_EQ(cache->pages().uses(), 0);
  }
}

}  // namespace
}  // namespace sluice::testing
