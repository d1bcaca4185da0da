// SmolLM2-135M-Instruct from its GGUF file against transformers (float32, the same weights rounded to bf16).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "host/weights/checkpoint.h"
#include "kernels/cpu/simd/bfloat16.h"
#include "scripting/base/mapped_file.h"
#include "tests/support/real_model_judge.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

std::string sha256(std::span<const std::byte> bytes) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash{};
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  std::string text;
  for (const unsigned char byte : hash) text += fmt::format("{:02x}", byte);
  return text;
}

TEST(RealModel, HasEveryTensorToTheBit) {
  SLUICE_SKIP_WITHOUT_REAL_MODEL();
  const nlohmann::json expected = testing::real_model_expectations();
  EXPECT_EQ(sha256(MappedFile(testing::real_model_path()).bytes()), expected["gguf_sha256"].get<std::string>());
  const Checkpoint checkpoint = Checkpoint::open(testing::real_model_path());
  const auto& hashes = expected["tensor_sha256_bf16"];
  EXPECT_EQ(checkpoint.tensors().size(), hashes.size());
  for (const auto& [name, hash] : hashes.items()) {
    const std::vector<float> values = checkpoint.at(name).to_f32();
    std::vector<uint16_t> rounded(values.size());
    std::transform(values.begin(), values.end(), rounded.begin(), cpu::round_to_bf16);
    EXPECT_EQ(sha256(std::as_bytes(std::span(rounded))), hash.get<std::string>()) << name;
  }
}

/// The model on the CPU.
class RealModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SLUICE_SKIP_WITHOUT_REAL_MODEL();
    if (test::kIsSanitized) GTEST_SKIP() << "it would take too long";
    judge_.emplace(create_cpu_device(), DataType::kF32);
  }

  std::optional<testing::RealModelJudge> judge_;
};

TEST_F(RealModelTest, IsLoadedWithinTwoSeconds) {
  RecordProperty("seconds", fmt::format("{:.3f}", judge_->load_seconds()));
  EXPECT_LT(judge_->load_seconds(), 2);
}

TEST_F(RealModelTest, HasTheLogitsOfTransformers) {
  const double error = judge_->logits_error();
  RecordProperty("largest_error", fmt::format("{:.2e}", error));
  EXPECT_LT(error, 2e-3);
}

TEST_F(RealModelTest, GoesOnAsTransformersDoes) { judge_->expect_continuations(0); }

TEST_F(RealModelTest, HasTheLossOfTransformersOnWindowsOfText) {
  for (const bool fed : {false, true}) {
    for (const auto& loss : judge_->losses(fed)) {
      RecordProperty(fmt::format("loss_beside_{:.3f}{}", loss.wanted, fed ? "_fed" : ""), fmt::format("{:.4f}", loss.got));
      EXPECT_NEAR(loss.got, loss.wanted, loss.wanted * 1e-3);
      EXPECT_NEAR(loss.right, loss.wanted_right, 1) << "of tokens that are as likely, to the last bits";
    }
  }
}

}  // namespace
}  // namespace sluice
