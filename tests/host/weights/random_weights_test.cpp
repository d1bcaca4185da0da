#include "host/weights/random_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "host/serving/engine.h"
#include "host/transformer/config.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

ModelConfig small_config() {
  ModelConfig config = known_geometry("qwen3-0.6b", 2);
  config.hidden = 64;
  config.query_heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.intermediate = 96;
  config.vocabulary = 500;
  config.rope = plain_rope(1e6, config.head_dim);
  return config;
}

std::vector<float> logits_of(const ModelConfig& config) {
  const auto device = create_cpu_device({2});
  const auto model = create_random_model(config, *device);
  EngineOptions options;
  options.pages = 8;
  options.max_batch = 1;
  Engine engine(*device, *model, nullptr, options);
  Request request;
  request.prompt = {3, 1, 4, 1, 5, 9, 2, 6};
  request.max_tokens = 3;
  request.want_logits = true;
  engine.submit(request);
  return engine.run_all().at(0).logits;
}

TEST(RandomWeights, KnowTheGeometriesOfPublicModels) {
  const ModelConfig config = known_geometry("qwen3-32b");
  EXPECT_EQ(config.layers, 64);
  EXPECT_EQ(config.hidden, 5120);
  EXPECT_EQ(config.group(), 8);
  EXPECT_EQ(config.vocabulary, 151936);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.rope.inverse_frequencies.size(), 64U);
  EXPECT_EQ(known_geometry("qwen3-32b", 3).layers, 3);
  EXPECT_THROW(known_geometry("qwen3-32b", 65), InputError);
  for (const std::string& name : known_geometries()) EXPECT_EQ(known_geometry(name).head_dim, 128) << name;
}

TEST(RandomWeights, NamesOfOtherModelsAreRefusedWithThoseKnown) {
  try {
    known_geometry("qwen3-7b");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(error.hint().find("qwen3-8b"), std::string::npos) << error.hint();
  }
}

TEST(RandomWeights, GiveTheSameSoundLogitsEveryTime) {
  const std::vector<float> logits = logits_of(small_config());
  ASSERT_EQ(logits.size(), 11U * 500U);
  double squares = 0;
  for (const float logit : logits) {
    ASSERT_TRUE(std::isfinite(logit));
    squares += double{logit} * logit;
  }
  // A normed row of 64 by weights of 0.02 is near a deviation of 0.16.
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(logits.size())), 0.16, 0.03);
  EXPECT_EQ(logits, logits_of(small_config()));
}

TEST(RandomWeights, AStepReadsNoTableThatIsNotTheHead) {
  const auto device = create_cpu_device({2});
  ModelConfig config = small_config();
  const auto tied = create_random_model(config, *device);
  EXPECT_EQ(tied->step_weight_bytes(), tied->weight_bytes());
  config.tied_embeddings = false;
  const auto untied = create_random_model(config, *device);
  EXPECT_EQ(untied->step_weight_bytes(), tied->step_weight_bytes());
  EXPECT_GT(untied->weight_bytes(), tied->weight_bytes());
}

}  // namespace
}  // namespace sluice
