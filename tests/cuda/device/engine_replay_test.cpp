// Decode steps that are replayed as graphs give the bits of those that are launched one by one.
#include <gtest/gtest.h>

#include <atomic>
#include <climits>
#include <exception>
#include <thread>

#include "agents/bench/operation_profile.h"
#include "host/weights/random_weights.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/device/batch_builder.h"
#include "tests/cuda/device/engine_fixture.h"

namespace sluice::testing {
namespace {

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
    device_->repeat(repetition.get(), tokens, {}, [&] {
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
      device_->repeat(repetition.get(), tokens, {}, [&] { device_->embed(*weight, tokens, nullptr, rows_of(kPasses)); });
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
