#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <climits>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <thread>

#include "agents/bench/operation_profile.h"
#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/trace_options.h"
#include "host/serving/engine.h"
#include "host/serving/kv_cache.h"
#include "host/serving/random.h"
#include "host/weights/default_model.h"
#include "host/weights/random_weights.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/device/batch_builder.h"
#include "tests/cuda/gpu.h"
#include "tests/support/greedy_tokens.h"
#include "tests/support/source_path.h"

// The serving loop on the GPU: decode steps that are replayed as graphs give the bits of those that are launched one by one.

namespace sluice::testing {
namespace {

class CudaEngine : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!runs()) return;
    device_ = create_device("cuda");
    model_ = load_model(source_path("host/models/mini").string(), *device_);
  }

  Plan plan_of(const std::string& flow) const {
    return compile(read_flow(source_path("scripting/flows/" + flow + ".lua").string()).trace(trace_options(model_->config())))
        .plan;
  }

  /// Prompts of lengths around pages and steps of `round_pages`, that end at different times.
  std::vector<Request> workload() const {
    std::vector<Request> requests;
    for (const int prompt : {250, 17, 1000, 16, 531, 2047}) {
      Request request;
      const auto seed = static_cast<uint64_t>(requests.size());
      for (int i = 0; i < prompt; ++i) {
        request.prompt.push_back(
            static_cast<int32_t>(counter_uniform(seed, static_cast<uint64_t>(i)) * model_->config().vocabulary));
      }
      request.max_tokens = 24 + 9 * static_cast<int>(requests.size());
      request.ignore_eos = true;
      request.want_logits = requests.size() % 2 == 0;
      request.sampling.temperature = requests.size() % 3 == 0 ? 1.0F : 0.0F;
      requests.push_back(std::move(request));
    }
    return requests;
  }

  /// By order of submission; passes of at most `most_rows` tokens. Others are admitted as the first `most_requests` end.
  static std::map<uint64_t, RequestResult> run(Device& device, const Model& model, const Plan* plan,
                                               const std::vector<Request>& requests, int most_rows = 300, int most_requests = 4) {
    EngineOptions options;
    options.pages = 2000;
    options.max_batch = most_requests;
    options.max_pass_tokens = most_rows;
    Engine engine(device, model, plan, options);
    for (const Request& request : requests) engine.submit(request);
    std::map<uint64_t, RequestResult> results;
    for (RequestResult& result : engine.run_all()) results[result.id] = std::move(result);
    return results;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
};

TEST_F(CudaEngine, ReplayedStepsGiveTheSameBits) {
  for (const std::string flow : {"", "quest", "h2o", "nsa_topk", "streaming"}) {
    const std::optional<Plan> plan = flow.empty() ? std::nullopt : std::optional(plan_of(flow));
    const Plan* const given = plan ? &*plan : nullptr;
    OperationProfile one_by_one(*device_);
    one_by_one.start();
    const auto wanted = run(*device_, *model_, given, workload());
    one_by_one.stop();
    const auto got = run(*device_, *model_, given, workload());
    ASSERT_EQ(got.size(), wanted.size());
    for (const auto& [id, result] : got) {
      EXPECT_EQ(result.tokens, wanted.at(id).tokens) << flow << ", request " << id;
      EXPECT_EQ(result.logits, wanted.at(id).logits) << flow << ", request " << id;
    }
  }
}

// Layers that keep the last tokens beside layers that keep all: masks and lists of pages of their own are replayed, too.
TEST_F(CudaEngine, ReplayedStepsWithWindowsGiveTheSameBits) {
  const auto run_with_windows = [&] {
    EngineOptions options;
    options.pages = 2000;
    options.max_batch = 4;
    options.max_pass_tokens = 300;
    options.windows = {{{1, 3, 6}, 512}, {{4}, 40}};
    Engine engine(*device_, *model_, nullptr, options);
    for (const Request& request : workload()) engine.submit(request);
    std::map<uint64_t, RequestResult> results;
    for (RequestResult& result : engine.run_all()) results[result.id] = std::move(result);
    EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total);
    return results;
  };
  OperationProfile one_by_one(*device_);
  one_by_one.start();
  const auto wanted = run_with_windows();
  one_by_one.stop();
  const auto got = run_with_windows();
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [id, result] : got) {
    EXPECT_EQ(result.tokens, wanted.at(id).tokens) << "request " << id;
    EXPECT_EQ(result.logits, wanted.at(id).logits) << "request " << id;
  }
  // The window is seen: with all tokens, long prompts go on otherwise.
  const auto of_all = run(*device_, *model_, nullptr, workload());
  EXPECT_NE(of_all.at(3).logits, got.at(3).logits);
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

TEST_F(CudaEngine, StepsAreReplayedOnceTheirShapeIsKnown) {
  constexpr int kColumns = 16;
  std::vector<float> table(64 * kColumns);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  const auto weight = device_->create_weight(table.data(), DataType::kF32, 64, kColumns);
  const auto memory = device_->allocate(4 * kColumns * sizeof(float));
  const auto pool = device_->create_pool(1, 1, 8, page_layout({.head_dim = 64, .group = 1, .page = 16}, {}));
  const auto repetition = device_->create_repetition();
  int runs = 0;
  const auto step = [&](const std::vector<int32_t>& tokens, bool decoding) {
    const auto sequences = static_cast<int32_t>(tokens.size());
    BatchBuilder batch(16);
    for (int32_t i = 0; i < sequences; ++i) batch.add({.first = 2, .decoding = decoding}, {&i, 1});
    const Matrix out{memory->data(), DataType::kF32, sequences, kColumns, kColumns};
    device_->begin_pass(batch.batch(), *pool);
    device_->repeat(repetition.get(), tokens, nullptr, [&] {
      ++runs;
      device_->embed(*weight, tokens, nullptr, out);
    });
    std::vector<float> got(tokens.size() * kColumns);
    device_->read(got.data(), memory->data(), got.size() * sizeof(float));
    device_->end_pass();
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i], static_cast<float>(tokens[i / kColumns] * kColumns + static_cast<int32_t>(i) % kColumns));
    }
  };
  step({1, 2, 3}, true);
  EXPECT_EQ(runs, 1);  // as they are
  step({4, 0, 5}, true);
  EXPECT_EQ(runs, 2);  // recorded
  step({9, 8, 7}, true);
  EXPECT_EQ(runs, 3);  // and for the other place of what passes send
  step({3, 3, 3}, true);
  step({5, 5, 1}, true);
  EXPECT_EQ(runs, 3);
  step({6}, true);  // another shape
  EXPECT_EQ(runs, 4);
  step({7, 1, 2}, false);
  EXPECT_EQ(runs, 5);  // prompts are not replayed
  step({2, 1, 2}, true);
  EXPECT_EQ(runs, 5);
}

TEST_F(CudaEngine, PassesFindTheirOwnTokensHoweverFarTheHostIsAhead) {
  constexpr int kColumns = 16;
  constexpr int kRows = 3;
  constexpr int kPasses = 9;
  std::vector<float> table(64 * kColumns);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i / kColumns);  // the token, which bf16 holds
  const auto weight = device_->create_weight(table.data(), DataType::kF32, 64, kColumns);
  const auto memory = device_->allocate((kPasses + 1) * kRows * kColumns * sizeof(float));
  const auto rows_of = [&](int pass) {
    return Matrix{static_cast<float*>(memory->data()) + pass * kRows * kColumns, DataType::kF32, kRows, kColumns, kColumns};
  };
  // Work that takes longer than the host needs for all else.
  constexpr int kWide = 1 << 16;
  const auto wide = device_->allocate(size_t{2} * 512 * kWide * sizeof(float));
  const std::vector<float> ones(kWide, 1.0F);
  const auto gain = device_->create_weight(ones.data(), DataType::kF32, 1, kWide);
  const Matrix x{wide->data(), DataType::kF32, 512, kWide, kWide};
  const Matrix y{static_cast<float*>(wide->data()) + int64_t{512} * kWide, DataType::kF32, 512, kWide, kWide};
  const auto pool = device_->create_pool(1, 1, 8, page_layout({.head_dim = 64, .group = 1, .page = 16}, {}));
  device_->reserve({.rows = 8, .sequences = 8, .pages_per_sequence = 4, .query_heads = 1, .kv_heads = 1, .head_dim = 64});

  class Foreign final : public RequestState {
   public:
    size_t bytes() const override { return 0; }
    void reset() override {}
  };
  Foreign foreign;
  const std::vector<int32_t> all = {0, 1, 2};
  BatchBuilder builder(16);
  for (const int32_t page : all) builder.add({.first = 2, .decoding = true}, {&page, 1});
  for (const bool replayed : {false, true}) {
    const auto repetition = replayed ? device_->create_repetition() : nullptr;
    const auto tokens_of = [&](int pass) { return std::vector<int32_t>{pass, 63 - pass, 20 + pass}; };
    for (int pass = 0; pass < kPasses; ++pass) {
      for (int i = 0; i < 10; ++i) device_->rms_norm(x, *gain, 1e-6F, y);
      std::vector<RequestState*> states(kRows);
      PassBatch batch = builder.batch();
      batch.states = states;
      if (pass % 3 == 1) {  // a pass that fails on its way leaves those around it alone
        states[1] = &foreign;
        EXPECT_THROW(device_->begin_pass(batch, *pool), InternalError);
        states[1] = nullptr;
      }
      const std::vector<int32_t> tokens = tokens_of(pass);
      device_->begin_pass(batch, *pool);
      device_->repeat(repetition.get(), tokens, nullptr, [&] { device_->embed(*weight, tokens, nullptr, rows_of(kPasses)); });
      device_->end_pass();
      device_->gather_rows(rows_of(kPasses), all, rows_of(pass));
    }
    std::vector<float> got(kPasses * kRows * kColumns);
    device_->read(got.data(), memory->data(), got.size() * sizeof(float));
    for (size_t i = 0; i < got.size(); ++i) {
      const int pass = static_cast<int>(i / (kRows * kColumns));
      const int32_t token = tokens_of(pass)[i / kColumns % kRows];
      EXPECT_EQ(got[i], static_cast<float>(token)) << pass << (replayed ? ", replayed" : "");
    }
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
    engine->on_token([&out](uint64_t, int32_t token) { out.push_back(token); });
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

/// Whose steps are few rows.
std::vector<Request> some_requests(size_t count) {
  std::vector<Request> requests(count);
  for (size_t i = 0; i < requests.size(); ++i) {
    for (int32_t token = 0; token < 20 + 7 * static_cast<int32_t>(i); ++token) requests[i].prompt.push_back(1000 + 37 * token);
    requests[i].max_tokens = 12;
    requests[i].ignore_eos = true;
    requests[i].want_logits = true;
  }
  return requests;
}

TEST_F(CudaEngine, StepsOfOneKernelALayerGiveTheSameBitsReplayed) {
  const std::unique_ptr<Model> model = create_random_model(known_geometry("qwen3-1.7b", 2), *device_);
  const std::vector<Request> requests = some_requests(3);
  OperationProfile one_by_one(*device_);
  one_by_one.start();
  const auto wanted = run(*device_, *model, nullptr, requests);
  EXPECT_GT(one_by_one.stop()["layer_chain"].calls, 0);
  const auto got = run(*device_, *model, nullptr, requests);
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [id, result] : got) {
    EXPECT_EQ(result.tokens, wanted.at(id).tokens) << id;
    EXPECT_EQ(result.logits, wanted.at(id).logits) << id;
  }
}

TEST_F(CudaEngine, RecordsStepsWhileOtherThreadsCopy) {
  const std::vector<Request> requests = workload();
  const auto wanted = run(*device_, *model_, nullptr, requests);
  std::atomic<int> copies = 0;
  std::exception_ptr fault;
  std::jthread other([&](const std::stop_token& stop) {
    try {
      const std::vector<float> numbers(size_t{1} << 16, 1.0F);
      while (!stop.stop_requested()) {  // what another engine of this process or the compiler of a flow does
        const auto device = create_device("cuda");
        device->allocate(size_t{1} << 20);
        device->create_weight(numbers.data(), DataType::kF32, 256, 256);
        device->create_pool(1, 1, 4, page_layout({.head_dim = 64, .group = 1, .page = 16}, {}));
        device->reserve({.rows = 8, .sequences = 8, .pages_per_sequence = 4, .query_heads = 1, .kv_heads = 1, .head_dim = 64});
        ++copies;
      }
    } catch (...) {
      fault = std::current_exception();
    }
  });
  for (int i = 0; i < 8; ++i) {  // each an engine that has recorded nothing
    const auto got = run(*device_, *model_, nullptr, requests);
    EXPECT_EQ(got.size(), wanted.size());
    for (const auto& [id, result] : got) EXPECT_EQ(result.tokens, wanted.at(id).tokens) << id;
  }
  other.request_stop();
  other.join();
  if (fault != nullptr) std::rethrow_exception(fault);
  EXPECT_GT(copies, 0);
}

TEST_F(CudaEngine, DevicesOfOneProcessDoNotKeepEachOthersBlocksWaiting) {
  const std::unique_ptr<Model> model = create_random_model(known_geometry("qwen3-1.7b", 2), *device_);
  for (const int count : {3, 21}) {  // a kernel for all between two layers' attention, or for the MLP
    std::vector<Request> requests = some_requests(static_cast<size_t>(count));
    for (Request& request : requests) {
      request.max_tokens = 200;
      request.want_logits = false;
    }
    const auto wanted = run(*device_, *model, nullptr, requests, 300, count);
    const auto expect_tokens = [&](const std::vector<RequestResult>& results) {
      EXPECT_EQ(results.size(), wanted.size());
      for (const RequestResult& result : results) EXPECT_EQ(result.tokens, wanted.at(result.id).tokens) << result.id;
    };
    EngineOptions options;
    options.pages = 2000;
    options.max_batch = count;
    options.max_pass_tokens = 300;
    Engine engine(*device_, *model, nullptr, options);
    for (const Request& request : requests) engine.submit(request);
    for (int step = 0; step < 30; ++step) engine.step();  // replayed by now
    {
      const auto other = create_device("cuda");
      const std::unique_ptr<Model> same = create_random_model(known_geometry("qwen3-1.7b", 2), *other);
      Engine beside(*other, *same, nullptr, options);
      for (const Request& request : requests) beside.submit(request);
      for (int step = 0; step < 100; ++step) {  // each has a pass on its way when the other begins one
        engine.step();
        beside.step();
      }
      expect_tokens(beside.run_all());
    }
    expect_tokens(engine.run_all());
  }
}

TEST_F(CudaEngine, RecordsStepsWhileOtherDevicesComeAndGo) {
  // On both, kernels whose blocks wait for each other; whether they are launched cooperatively changes all the time.
  const auto model_on = [](Device& device) { return create_random_model(known_geometry("qwen3-1.7b", 1), device); };
  const std::unique_ptr<Model> model = model_on(*device_);
  const std::vector<Request> requests = some_requests(3);
  const auto wanted = run(*device_, *model, nullptr, requests);
  const auto expect_tokens = [&](const std::map<uint64_t, RequestResult>& results) {
    EXPECT_EQ(results.size(), wanted.size());
    for (const auto& [id, result] : results) EXPECT_EQ(result.tokens, wanted.at(id).tokens) << id;
  };
  std::atomic<int> devices = 0;
  std::exception_ptr fault;
  std::jthread others([&](const std::stop_token& stop) {
    try {
      while (!stop.stop_requested()) {
        const auto device = create_device("cuda");
        expect_tokens(run(*device, *model_on(*device), nullptr, requests));
        ++devices;
      }
    } catch (...) {
      fault = std::current_exception();
      devices = INT_MAX;
    }
  });
  while (devices < 3) expect_tokens(run(*device_, *model, nullptr, requests));
  others.request_stop();
  others.join();
  if (fault != nullptr) std::rethrow_exception(fault);
}

TEST_F(CudaEngine, StepsWhoseMlpIsOneKernelGiveTheSameBitsReplayed) {
  const std::unique_ptr<Model> model = create_random_model(known_geometry("qwen3-1.7b", 2), *device_);
  const std::vector<Request> requests = some_requests(21);
  OperationProfile one_by_one(*device_);
  one_by_one.start();
  const auto wanted = run(*device_, *model, nullptr, requests, 300, 21);
  const OperationProfile::Totals operations = one_by_one.stop();
  if (cuda::multiprocessors() == 132) {
    EXPECT_TRUE(operations.contains("decode_mlp"));
  }
  const auto got = run(*device_, *model, nullptr, requests, 300, 21);
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [id, result] : got) {
    EXPECT_EQ(result.tokens, wanted.at(id).tokens) << id;
    EXPECT_EQ(result.logits, wanted.at(id).logits) << id;
  }
}

}  // namespace
}  // namespace sluice::testing
