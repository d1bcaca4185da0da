// SmolLM2-135M-Instruct from its GGUF file against transformers (float32, the same weights rounded to bf16).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "host/serving/engine.h"
#include "host/text/tokenizer.h"
#include "host/weights/checkpoint.h"
#include "kernels/cpu/simd/bfloat16.h"
#include "scripting/base/mapped_file.h"
#include "tests/support/real_model.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

std::string model_file() { return testing::real_model_file("SmolLM2-135M-Instruct.Q4_1.gguf").string(); }

nlohmann::json expectations() { return nlohmann::json::parse(read_text_file(testing::real_model_file("smollm2.json").string())); }

std::string sha256(std::span<const std::byte> bytes) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash{};
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  std::string text;
  for (const unsigned char byte : hash) text += fmt::format("{:02x}", byte);
  return text;
}

TEST(RealModel, HasEveryTensorToTheBit) {
  SLUICE_SKIP_WITHOUT_REAL_MODEL();
  const nlohmann::json expected = expectations();
  EXPECT_EQ(sha256(MappedFile(model_file()).bytes()), expected["gguf_sha256"].get<std::string>());
  const Checkpoint checkpoint = Checkpoint::open(model_file());
  const auto& hashes = expected["tensor_sha256_bf16"];
  EXPECT_EQ(checkpoint.tensors().size(), hashes.size());
  for (const auto& [name, hash] : hashes.items()) {
    const std::vector<float> values = checkpoint.at(name).to_f32();
    std::vector<uint16_t> rounded(values.size());
    std::transform(values.begin(), values.end(), rounded.begin(), cpu::round_to_bf16);
    EXPECT_EQ(sha256(std::as_bytes(std::span(rounded))), hash.get<std::string>()) << name;
  }
}

/// The model on the CPU, and an engine with K and V in float32.
class RealModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SLUICE_SKIP_WITHOUT_REAL_MODEL();
    if (test::kIsSanitized) GTEST_SKIP() << "it would take too long";
    const auto begin = std::chrono::steady_clock::now();
    device_ = create_cpu_device();
    model_ = load_model(model_file(), *device_);
    tokenizer_ = load_tokenizer(model_file());
    load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EngineOptions options;
    options.kv = DataType::kF32;
    options.pages = 300;
    options.max_batch = 4;
    options.prefix_cache = false;
    engine_.emplace(*device_, *model_, nullptr, options);
  }

  RequestResult run(std::vector<int32_t> prompt, int max_tokens, bool want_logits) {
    Request request;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    request.ignore_eos = true;
    request.want_logits = want_logits;
    engine_->submit(std::move(request));
    return engine_->run_all().at(0);
  }

  std::span<const float> row(const RequestResult& result, size_t index) const {
    const auto width = static_cast<size_t>(model_->config().vocabulary);
    return std::span(result.logits).subspan(index * width, width);
  }

  static double log_sum_exp(std::span<const float> logits) {
    const double most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - most);
    return most + std::log(sum);
  }

  nlohmann::json expected_ = testing::has_real_model() ? expectations() : nullptr;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<Engine> engine_;
  double load_seconds_ = 0;
};

TEST_F(RealModelTest, IsLoadedWithinTwoSeconds) {
  RecordProperty("seconds", fmt::format("{:.3f}", load_seconds_));
  EXPECT_LT(load_seconds_, 2);
}

TEST_F(RealModelTest, HasTheLogitsOfTransformers) {
  const auto ids = expected_["logits"]["ids"].get<std::vector<int32_t>>();
  const RequestResult result = run(ids, 1, true);
  double largest = 0;
  for (const auto& [number, expected] : expected_["logits"]["rows"].items()) {
    const std::span<const float> logits = row(result, std::stoul(number));
    EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), expected["top"][0].get<int>()) << number;
    for (size_t i = 0; i < expected["top"].size(); ++i) {
      largest = std::max(largest, std::abs(logits[expected["top"][i].get<size_t>()] - expected["values"][i].get<double>()));
    }
    largest = std::max(largest, std::abs(log_sum_exp(logits) - expected["logsumexp"].get<double>()));
  }
  RecordProperty("largest_error", fmt::format("{:.2e}", largest));
  EXPECT_LT(largest, 2e-3);
}

TEST_F(RealModelTest, GoesOnAsTransformersDoes) {
  for (const nlohmann::json& entry : expected_["greedy"]) {
    const auto ids = entry["ids"].get<std::vector<int32_t>>();
    const RequestResult result = run(tokenizer_->encode(entry["prompt"].get<std::string>()), static_cast<int>(ids.size()), false);
    EXPECT_EQ(result.tokens, ids) << entry["prompt"];
  }
}

TEST_F(RealModelTest, HasTheLossOfTransformersOnWindowsOfText) {
  for (const nlohmann::json& window : expected_["windows"]) {
    const auto ids = window["ids"].get<std::vector<int32_t>>();
    const auto last = window["last"].get<size_t>();
    const RequestResult result = run(ids, 1, true);
    double loss = 0;
    int right = 0;
    for (size_t at = ids.size() - last; at < ids.size(); ++at) {
      const std::span<const float> logits = row(result, at - 1);
      loss += log_sum_exp(logits) - logits[static_cast<size_t>(ids[at])];
      right += std::max_element(logits.begin(), logits.end()) - logits.begin() == ids[at] ? 1 : 0;
    }
    const auto expected = window["nll"].get<double>();
    RecordProperty(fmt::format("loss_beside_{:.3f}", expected), fmt::format("{:.4f}", loss));
    EXPECT_NEAR(loss, expected, expected * 1e-3);
    EXPECT_NEAR(right, window["right"].get<int>(), 1) << "of tokens that are as likely, to the last bits";
  }
}

}  // namespace
}  // namespace sluice
