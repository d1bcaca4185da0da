// The mini model on the GPU against the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "host/serving/engine.h"
#include "kernels/device/open_pass.h"
#include "scripting/base/mapped_file.h"
#include "tests/cuda/device/device_fixture.h"
#include "tests/support/source_path.h"

namespace sluice {
namespace {

using testing::CudaDeviceTest;
using testing::error_of;

TEST_F(CudaDeviceTest, GivesTheTokensOfTheCpuWithTheMiniModel) {
  const nlohmann::json cases = nlohmann::json::parse(read_text_file(testing::source_path("tests/goldens/mini.json")))["prompts"];
  const auto run = [&](Device& device, int max_batch) {
    const auto model = load_model(testing::source_path("host/models/mini"), device);
    EngineOptions options;
    options.max_batch = max_batch;
    options.max_pass_tokens = 64;  // several chunks of prefill, beside decode steps of others
    Engine engine(device, *model, nullptr, options);
    for (const nlohmann::json& one : cases) {
      Request request;
      request.prompt = one["ids"].get<std::vector<int32_t>>();
      request.max_tokens = 32;
      request.ignore_eos = true;
      request.want_logits = true;
      engine.submit(request);
    }
    std::vector<RequestResult> results = engine.run_all();
    std::sort(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    return results;
  };
  const auto cpu = create_cpu_device();
  const std::vector<RequestResult> wanted = run(*cpu, 4);
  for (const int max_batch : {1, 4}) {
    const std::vector<RequestResult> got = run(*device_, max_batch);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].tokens.size(), wanted[i].tokens.size());
      ASSERT_EQ(got[i].logits.size(), wanted[i].logits.size());
      // Activations are bf16 here, and float32 on the CPU. Where the CPU hardly prefers a token, another may be chosen; what
      // follows then is another text.
      const auto same = static_cast<size_t>(
          std::mismatch(got[i].tokens.begin(), got[i].tokens.end(), wanted[i].tokens.begin()).first - got[i].tokens.begin());
      const size_t prompt = cases[i]["ids"].size();
      const size_t vocabulary = wanted[i].logits.size() / (prompt + wanted[i].tokens.size());
      if (same < wanted[i].tokens.size()) {
        const float* choice = wanted[i].logits.data() + (prompt + same - 1) * vocabulary;
        EXPECT_LT(choice[wanted[i].tokens[same]] - choice[got[i].tokens[same]], 0.2F) << "prompt " << i << ", token " << same;
      }
      const auto rows = static_cast<int64_t>((prompt + same) * vocabulary);
      const double error = error_of({got[i].logits.begin(), got[i].logits.begin() + rows},
                                    {wanted[i].logits.begin(), wanted[i].logits.begin() + rows});
      EXPECT_LT(error, 2e-2) << "prompt " << i;
      RecordProperty("logit_error_" + std::to_string(max_batch) + "_" + std::to_string(i), std::to_string(error));
    }
  }
}

/// What passes pick by themselves, as parts of a graph may, is what is picked of their logits afterwards; two of them are ahead
/// of whoever takes the results, beside calls whose rows are sampled or stand in another order.
TEST_F(CudaDeviceTest, PassesPickTheBestOfTheirProducts) {
  using testing::Batch;
  using testing::Held;
  constexpr int kRows = 24;
  constexpr int kHidden = 64;
  constexpr int kVocabulary = 4096;
  constexpr int kPasses = 12;
  const Batch batch(std::vector<int>(kRows, 1), std::vector<int>(kRows, 20), 16, 3);
  const auto pool = device_->create_pool(1, 1, batch.all_pages(), page_layout({64, 1, 16, kBF16}, {}));
  const auto table = weight_of(draw(kVocabulary * kHidden), kVocabulary, kHidden);
  const auto head = weight_of(draw(kVocabulary * kHidden), kVocabulary, kHidden);
  const auto picks = device_->create_picks(kRows);
  std::vector<Held> inputs;
  std::vector<Held> embedded;
  for (int pass = 0; pass < kPasses; ++pass) {
    inputs.push_back(hold(kRows, kHidden, kBF16));
    embedded.push_back(empty(kRows, kHidden, kF32));
  }
  const Held logits = empty(kRows, kVocabulary, kF32);
  const auto choices = [](int pass) {
    std::vector<SampleRow> rows;
    const int count = pass % 4 == 1 ? kRows - 5 : kRows;
    for (int i = 0; i < count; ++i) rows.push_back({.row = pass % 4 == 2 ? kRows - 1 - i : i});
    if (pass % 4 == 3) rows[3].likely = 2;
    return rows;
  };
  const auto run = [&](int pass) {
    std::vector<int32_t> tokens(kRows, pass);  // of the first pass; later ones embed what was picked before
    for (int i = 0; pass > 0 && i < kRows; ++i) tokens[static_cast<size_t>(i)] = -1 - i % picks->rows();
    const OpenPass open(*device_, batch.view(), *pool);
    device_->embed(*table, tokens, picks.get(), embedded[static_cast<size_t>(pass)].matrix);
    const Matrix x = inputs[static_cast<size_t>(pass)].matrix;
    if (pass % 4 == 3) {
      device_->matmul(x, *head, logits.matrix);
      device_->sample(logits.matrix, choices(pass), *picks);
    } else {
      device_->find_best(x, *head, logits.matrix, *picks);
      device_->pick_best(logits.matrix, choices(pass), *picks);
    }
  };
  std::vector<std::vector<Sampled>> got;
  for (int pass = 0; pass <= kPasses; ++pass) {
    if (pass < kPasses) run(pass);
    if (pass == 0) continue;
    got.emplace_back(choices(pass - 1).size());
    device_->take(*picks, got.back());
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    device_->matmul(inputs[static_cast<size_t>(pass)].matrix, *head, logits.matrix);
    std::vector<SampleRow> rows = choices(pass);
    for (SampleRow& row : rows) row.likely = -1;
    std::vector<Sampled> wanted(rows.size());
    device_->sample(logits.matrix, rows, wanted);
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_EQ(got[static_cast<size_t>(pass)][i].token, wanted[i].token) << pass << ", " << i;
    if (pass + 1 == kPasses) break;
    const std::vector<float> next = fetch(embedded[static_cast<size_t>(pass) + 1].matrix);
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < kRows; ++i) tokens.push_back(wanted[i % wanted.size()].token);
    const Held expected = empty(kRows, kHidden, kF32);
    device_->embed(*table, tokens, nullptr, expected.matrix);
    EXPECT_EQ(next, fetch(expected.matrix)) << pass;
  }
}

}  // namespace
}  // namespace sluice
