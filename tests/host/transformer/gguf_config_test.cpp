#include <gtest/gtest.h>
#include <map>

#include <cmath>

#include "host/transformer/config.h"
#include "scripting/base/error.h"
#include "tests/support/small_gguf.h"

namespace sluice {
namespace {

using testing::GgufWriter;
using testing::small_gguf;

ModelConfig config_of(const GgufWriter& writer) {
  const std::string image = writer.image();
  return gguf_config(parse_gguf(std::as_bytes(std::span(image)), "model.gguf"));
}

void expect_refused(const GgufWriter& writer, const std::string& why) {
  try {
    config_of(writer);
    ADD_FAILURE() << "accepted: " << why;
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).rfind("model.gguf: ", 0), 0U) << error.what();
  }
}

TEST(GgufConfig, ReadsALlama) {
  const ModelConfig config = config_of(small_gguf());
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_FALSE(config.qk_norm);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.hidden, 64);
  EXPECT_EQ(config.query_heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.intermediate, 96);
  EXPECT_EQ(config.vocabulary, 262);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_EQ(config.rms_epsilon, 1e-5F);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.end_tokens, std::vector<int32_t>{259});
  ASSERT_EQ(config.rope.inverse_frequencies.size(), 8U);
  EXPECT_FLOAT_EQ(config.rope.inverse_frequencies[3], std::pow(100000.F, -6.F / 16));
}

/// The same under the keys of another architecture.
GgufWriter qwen3() {
  GgufWriter writer = small_gguf();
  writer.put("general.architecture", "qwen3");
  writer.put("qwen3.block_count", uint32_t{2});
  writer.put("qwen3.context_length", uint32_t{2048});
  writer.put("qwen3.embedding_length", uint32_t{64});
  writer.put("qwen3.feed_forward_length", uint32_t{96});
  writer.put("qwen3.attention.head_count", uint32_t{4});
  writer.put("qwen3.attention.head_count_kv", uint32_t{2});
  writer.put("qwen3.attention.key_length", uint32_t{32});
  writer.put("qwen3.attention.value_length", uint32_t{32});
  writer.put("qwen3.attention.layer_norm_rms_epsilon", 1e-6F);
  return writer;
}

TEST(GgufConfig, ReadsAQwen3WithHeadsOfItsOwnSize) {
  GgufWriter writer = qwen3();
  writer.add("output.weight", {262, 64}, std::vector<float>(262 * 64));
  const ModelConfig config = config_of(writer);
  EXPECT_EQ(config.architecture, "Qwen3ForCausalLM");
  EXPECT_TRUE(config.qk_norm);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.rope.theta, 10000);
}

TEST(GgufConfig, EndsAtTheTokensOfTextsTurnsAndMessages) {
  GgufWriter writer = small_gguf();
  writer.put("tokenizer.ggml.eot_token_id", uint32_t{258});
  writer.put("tokenizer.ggml.eom_token_id", uint32_t{259});
  EXPECT_EQ(config_of(writer).end_tokens, (std::vector<int32_t>{259, 258}));
  writer.put("tokenizer.ggml.eot_token_id", uint32_t{262});
  expect_refused(writer, "tokenizer.ggml.eot_token_id is 262; an integer from 0 to 261 is wanted");
}

TEST(GgufConfig, DividesFrequenciesByFactors) {
  const ModelConfig plain = config_of(small_gguf());
  GgufWriter writer = small_gguf();
  writer.put("llama.rope.scaling.type", "linear");
  writer.put("llama.rope.scaling.factor", 4.F);
  writer.add("rope_freqs.weight", {8}, std::vector<float>{1, 1, 1, 1, 2, 4, 8, 8});
  const ModelConfig scaled = config_of(writer);
  EXPECT_FLOAT_EQ(scaled.rope.inverse_frequencies[0], plain.rope.inverse_frequencies[0] / 4);
  EXPECT_FLOAT_EQ(scaled.rope.inverse_frequencies[5], plain.rope.inverse_frequencies[5] / 16);
  writer.put("llama.rope.scaling.type", "none");
  EXPECT_FLOAT_EQ(config_of(writer).rope.inverse_frequencies[5], plain.rope.inverse_frequencies[5] / 4);
  writer.put("llama.rope.scaling.type", "longrope");
  expect_refused(writer, R"(llama.rope.scaling.type is "longrope"; "none", "linear" or "yarn" is wanted)");
}

// As Config.ReadsYarnAsTransformersDoes has them.
TEST(GgufConfig, ReadsYarnAsTransformersDoes) {
  GgufWriter writer = qwen3();
  writer.add("output.weight", {262, 64}, std::vector<float>(262 * 64));
  writer.put("qwen3.attention.key_length", uint32_t{128});
  writer.put("qwen3.attention.value_length", uint32_t{128});
  writer.put("qwen3.context_length", uint32_t{40960});
  writer.put("qwen3.rope.freq_base", 1e6F);
  writer.put("qwen3.rope.scaling.type", "yarn");
  expect_refused(writer, "qwen3.rope.scaling.factor");
  writer.put("qwen3.rope.scaling.factor", 4.F);
  writer.put("qwen3.rope.scaling.original_context_length", uint32_t{32768});
  const ModelConfig config = config_of(writer);
  EXPECT_NEAR(config.rope.attention_scale, 1.138629436111989, 1e-6);
  EXPECT_EQ(config.max_positions, 131072) << "which the scaling is for";
  for (const auto& [channel, frequency] :
       std::map<size_t, double>{{0, 1.0}, {20, 0.0133352149}, {28, 0.00184827659}, {40, 4.44569851e-05}, {63, 3.10234441e-07}})
    EXPECT_NEAR(config.rope.inverse_frequencies[channel], frequency, 2e-6 * frequency) << channel;
  writer.put("qwen3.rope.scaling.attn_factor", 2.F);
  EXPECT_NEAR(config_of(writer).rope.attention_scale, 2 * 1.138629436111989, 1e-5);
  writer.put("qwen3.rope.scaling.yarn_ext_factor", 0.F);
  expect_refused(writer, "yarn_ext_factor is 0");
}

TEST(GgufConfig, RefusesFactorsThatAreNone) {
  GgufWriter writer = small_gguf();
  writer.add("rope_freqs.weight", {7}, std::vector<float>(7, 1));
  expect_refused(writer, "\"rope_freqs.weight\" has shape [7]; [8] is wanted");
  for (const float factor : {0.F, -1.F, NAN, INFINITY}) {
    writer.drop_tensor("rope_freqs.weight");
    writer.add("rope_freqs.weight", {8}, std::vector<float>(8, factor));
    expect_refused(writer, "holds a factor that is not above 0");
  }
}

TEST(GgufConfig, RefusesOtherArchitecturesByName) {
  GgufWriter writer = small_gguf();
  writer.put("general.architecture", "gemma3");
  expect_refused(writer, "general.architecture is \"gemma3\"; it is not supported");
  writer.put("general.architecture", "qwen2");
  expect_refused(writer, "general.architecture is \"qwen2\"; its queries, keys and values have biases, which are not supported");
  writer.drop("general.architecture");
  expect_refused(writer, "general.architecture is missing");
}

TEST(GgufConfig, RefusesOtherComputationsByKey) {
  for (const char* key : {"attention.sliding_window", "expert_count"}) {
    GgufWriter writer = small_gguf();
    writer.put(std::string("llama.") + key, uint32_t{8});
    expect_refused(writer, std::string("llama.") + key + " is 8; only 0 is supported");
  }
  GgufWriter writer = small_gguf();
  writer.put("llama.logit_scale", 0.5F);
  expect_refused(writer, "llama.logit_scale is 0.5; it is not supported");
  writer = small_gguf();
  writer.put("llama.attention.causal", false);
  expect_refused(writer, "only true is supported");
}

TEST(GgufConfig, RefusesShapesThatCannotBe) {
  const auto with = [](const char* key, uint32_t value) {
    GgufWriter writer = small_gguf();
    writer.put(std::string("llama.") + key, value);
    return writer;
  };
  expect_refused(with("block_count", 0), "llama.block_count is 0; an integer from 1 to 1024 is wanted");
  expect_refused(with("attention.head_count", 1U << 31), "llama.attention.head_count is 2147483648");
  expect_refused(with("attention.head_count_kv", 3), "it must divide the count of query heads (4)");
  expect_refused(with("attention.key_length", 7), "the head dimension is 7");
  expect_refused(with("attention.value_length", 8), "the dimension of keys (16) is wanted");
  expect_refused(with("rope.dimension_count", 8), "the head dimension (16) is wanted");
  expect_refused(with("vocab_size", 261), "as many as there are embeddings (262) are wanted");
  GgufWriter writer = small_gguf();
  writer.put("llama.block_count", "two");
  expect_refused(writer, "llama.block_count is \"two\"; an integer");
  writer = small_gguf();
  writer.put("llama.feed_forward_length", std::vector<int32_t>{96, 96});
  expect_refused(writer, "llama.feed_forward_length is an array of 2; an integer");
  for (const char* key : {"context_length", "attention.layer_norm_rms_epsilon"}) {
    writer = small_gguf();
    writer.drop(std::string("llama.") + key);
    expect_refused(writer, std::string("llama.") + key + " is missing from the metadata");
  }
  writer = small_gguf();
  writer.drop_tensor("token_embd.weight");
  expect_refused(writer, "tensor \"token_embd.weight\" is missing");
}

}  // namespace
}  // namespace sluice
