// The mini model on the GPU against the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "host/serving/engine.h"
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

}  // namespace
}  // namespace sluice
