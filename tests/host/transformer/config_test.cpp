#include "host/transformer/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "scripting/base/error.h"
#include "tests/host/transformer/tiny_model.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

Json qwen() {
  return Json::parse(
      R"({"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 8, "hidden_size": 256, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 768, "vocab_size": 1024, "max_position_embeddings": 16384,
    "rms_norm_eps": 1e-6, "rope_theta": 500000.0, "tie_word_embeddings": true, "eos_token_id": 2, "attention_bias": false})");
}

ModelConfig parse(const Json& json) { return parse_config(json.dump(), "config.json"); }

void expect_refused(const char* key, const Json& value, const std::string& why) {
  Json json = qwen();
  json[key] = value;
  try {
    parse(json);
    ADD_FAILURE() << key << " was accepted as " << value;
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("config.json"), std::string::npos) << error.what();
  }
}

TEST(Config, ReadsQwen3) {
  const ModelConfig config = parse(qwen());
  EXPECT_EQ(config.layers, 8);
  EXPECT_EQ(config.hidden, 256);
  EXPECT_EQ(config.group(), 4);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.vocabulary, 1024);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_EQ(config.end_tokens, std::vector<int32_t>{2});
  ASSERT_EQ(config.rope.inverse_frequencies.size(), 32U);
  EXPECT_FLOAT_EQ(config.rope.inverse_frequencies[0], 1);
  EXPECT_FLOAT_EQ(config.rope.inverse_frequencies[16], 1 / std::sqrt(500000.0F));
}

TEST(Config, ReadsRopeParametersOfNewerFiles) {
  Json json = qwen();
  json.erase("rope_theta");
  json["rope_parameters"] = {{"rope_theta", 10000.0}, {"rope_type", "default"}};
  EXPECT_FLOAT_EQ(parse(json).rope.inverse_frequencies[16], 0.01F);
  json["rope_parameters"] = {{"rope_theta", 10000.0}, {"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_FLOAT_EQ(parse(json).rope.inverse_frequencies[16], 0.005F);
}

TEST(Config, LlamaHasNoQkNormAndDerivesHeadDim) {
  Json json = qwen();
  json["architectures"] = {"LlamaForCausalLM"};
  json["head_dim"] = nullptr;
  json.erase("num_key_value_heads");
  const ModelConfig config = parse(json);
  EXPECT_FALSE(config.qk_norm);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.kv_heads, 8);
}

TEST(Config, ReadsSeveralEndTokens) {
  Json json = qwen();
  json["eos_token_id"] = {2, 5};
  EXPECT_EQ(parse(json).end_tokens, (std::vector<int32_t>{2, 5}));
  json["eos_token_id"] = nullptr;
  EXPECT_TRUE(parse(json).end_tokens.empty());
}

TEST(Config, GenerationConfigDecidesEndTokens) {
  const testing::TemporaryDirectory directory;
  testing::write_text(directory.file("config.json"), qwen().dump());
  EXPECT_EQ(load_config(directory.path()).end_tokens, std::vector<int32_t>{2});
  testing::write_text(directory.file("generation_config.json"), R"({"eos_token_id": [7, 8]})");
  EXPECT_EQ(load_config(directory.path()).end_tokens, (std::vector<int32_t>{7, 8}));
  testing::write_text(directory.file("generation_config.json"), R"({"temperature": 1.0})");
  EXPECT_EQ(load_config(directory.path()).end_tokens, std::vector<int32_t>{2});
  testing::write_text(directory.file("generation_config.json"), R"({"eos_token_id": 4096})");
  EXPECT_THROW(load_config(directory.path()), InputError);
}

TEST(Config, UnknownArchitectureListsSupportedOnes) {
  Json json = qwen();
  json["architectures"] = {"MambaForCausalLM"};
  try {
    parse(json);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("MambaForCausalLM"), std::string::npos);
    EXPECT_NE(error.hint().find("Qwen3ForCausalLM, LlamaForCausalLM"), std::string::npos);
  }
}

TEST(Config, NamesKeysOfWrongTypeOrRange) {
  expect_refused("num_hidden_layers", "8", "\"num_hidden_layers\" is \"8\"");
  expect_refused("num_hidden_layers", 0, "\"num_hidden_layers\" is 0");
  expect_refused("hidden_size", 2.5, "\"hidden_size\" is 2.5");
  expect_refused("hidden_size", 18446744073709551615U, "\"hidden_size\"");
  expect_refused("vocab_size", nullptr, "\"vocab_size\" is missing");
  expect_refused("num_key_value_heads", 3, "must divide");
  expect_refused("head_dim", 63, "even");
  expect_refused("rms_norm_eps", -1, "\"rms_norm_eps\" is -1");
  expect_refused("rope_theta", 0, "\"rope_theta\" is 0");
  expect_refused("tie_word_embeddings", 1, "\"tie_word_embeddings\" is 1");
  expect_refused("eos_token_id", 1024, "token ids from 0 to 1023");
  expect_refused("eos_token_id", "x", "\"eos_token_id\"");
  expect_refused("architectures", "Qwen3ForCausalLM", "\"architectures\"");
}

TEST(Config, ReadsWindows) {
  using Windows = std::vector<int>;
  Json json = qwen();
  json["sliding_window"] = 100;
  json["max_window_layers"] = 6;
  EXPECT_EQ(parse(json).windows, Windows{}) << "a Qwen3 model says whether it uses them";
  json["use_sliding_window"] = true;
  EXPECT_EQ(parse(json).windows, (Windows{0, 0, 0, 0, 0, 0, 100, 100}));
  json["layer_types"] = Json::array({"sliding_attention", "full_attention", "sliding_attention", "full_attention",
                                     "full_attention", "full_attention", "full_attention", "full_attention"});
  EXPECT_EQ(parse(json).windows, (Windows{100, 0, 100, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(parse(json).has_windows());
  json.erase("sliding_window");
  EXPECT_EQ(parse(json).windows.front(), 4096);
  json["sliding_window"] = nullptr;
  EXPECT_THROW(parse(json), InputError);
  json.erase("layer_types");
  EXPECT_EQ(parse(json).windows, Windows{});
  json["sliding_window"] = 0;
  EXPECT_THROW(parse(json), InputError);
  Json mistral = qwen();
  mistral["architectures"] = {"MistralForCausalLM"};
  EXPECT_EQ(parse(mistral).windows, Windows(8, 4096));
  EXPECT_FALSE(parse(mistral).qk_norm);
  mistral["sliding_window"] = 64;
  EXPECT_EQ(parse(mistral).windows, Windows(8, 64));
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(parse(mistral).windows, Windows{});
  mistral["sliding_window"] = 16384;
  EXPECT_EQ(parse(mistral).windows, Windows{}) << "as many as there are positions";
  Json llama = qwen();
  llama["architectures"] = {"LlamaForCausalLM"};
  llama["use_sliding_window"] = true;
  EXPECT_THROW(parse(llama), InputError);
}

/// What transformers' own _compute_yarn_parameters gives, in float32.
TEST(Config, ReadsYarnAsTransformersDoes) {
  const auto parsed = [](double theta, int head_dim, int positions, const Json& scaling) {
    Json json = qwen();
    json["rope_theta"] = theta;
    json["head_dim"] = head_dim;
    json["max_position_embeddings"] = positions;
    json["rope_scaling"] = scaling;
    return parse(json);
  };
  const auto near = [](float got, double wanted) { EXPECT_NEAR(got, wanted, 2e-6 * wanted); };
  const ModelConfig qwen3 =
      parsed(1e6, 128, 40960, {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}});
  near(qwen3.rope.attention_scale, 1.138629436111989);
  EXPECT_EQ(qwen3.max_positions, 131072) << "which the scaling is for";
  for (const auto& [channel, frequency] : std::map<size_t, double>{{0, 1.0},
                                                                   {1, 0.805842221},
                                                                   {20, 0.0133352149},
                                                                   {24, 0.00537532149},
                                                                   {28, 0.00184827659},
                                                                   {34, 0.000334240554},
                                                                   {38, 9.26230132e-05},
                                                                   {40, 4.44569851e-05},
                                                                   {44, 1.87473561e-05},
                                                                   {63, 3.10234441e-07}})
    near(qwen3.rope.inverse_frequencies[channel], frequency);
  const ModelConfig small = parsed(1e4, 16, 2048, {{"type", "yarn"}, {"factor", 8.0}, {"beta_fast", 16.0}, {"beta_slow", 2.0}});
  near(small.rope.attention_scale, 1.2079441541679836);
  EXPECT_EQ(small.max_positions, 2048);
  const std::vector<double> wanted = {1.0,           0.316227764,    0.100000001,    0.0223994683,
                                      0.00416666642, 0.000395284733, 0.000125000006, 3.95284733e-05};
  for (size_t i = 0; i < wanted.size(); ++i) near(small.rope.inverse_frequencies[i], wanted[i]);
  const ModelConfig given = parsed(5e5, 64, 8192, {{"rope_type", "yarn"}, {"factor", 2.5}, {"attention_factor", 1.5}});
  EXPECT_EQ(given.rope.attention_scale, 1.5F);
  near(given.rope.inverse_frequencies[10], 0.015456412);
  near(given.rope.inverse_frequencies[31], 1.20554319e-06);
  // DeepSeek's numbers, which cancel each other.
  const ModelConfig equal = parsed(
      5e5, 64, 8192, {{"rope_type", "yarn"}, {"factor", 40.0}, {"mscale", 1.0}, {"mscale_all_dim", 1.0}, {"beta_fast", 0}});
  EXPECT_EQ(equal.rope.attention_scale, 1.0F);
}

TEST(Config, RopeScalingGoesBeforeRopeParametersAsInTransformers) {
  Json json = qwen();
  json["rope_parameters"] = {{"rope_theta", 10000.0}, {"rope_type", "default"}};
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 10000.0}};
  EXPECT_FLOAT_EQ(parse(json).rope.inverse_frequencies[16], 0.005F);
  json["rope_scaling"] = nullptr;
  EXPECT_FLOAT_EQ(parse(json).rope.inverse_frequencies[16], 0.01F);
  json["rope_scaling"] = Json::object();
  EXPECT_FLOAT_EQ(parse(json).rope.inverse_frequencies[16], 0.01F);
}

TEST(Config, RefusesWhatItWouldComputeWrongly) {
  expect_refused("attention_bias", true, "\"attention_bias\" is true");
  expect_refused("hidden_act", "gelu", "\"hidden_act\" is \"gelu\"");
  const Json slides = Json::array({"sliding_attention", "full_attention", "full_attention", "full_attention", "full_attention",
                                   "full_attention", "full_attention", "full_attention"});
  expect_refused("layer_types", slides, "\"layer_types\"");
  expect_refused("layer_types", {"full_attention", "full_attention"}, "2 \"layer_types\" for 8 layers");
  expect_refused("layer_types", {"chunked_attention"}, "\"layer_types\"");
  expect_refused("quantization_config", {{"bits", 4}}, "\"quantization_config\"");
  expect_refused("rope_scaling", {{"rope_type", "longrope"}, {"factor", 4.0}}, "\"rope_type\" is \"longrope\"");
  expect_refused("rope_scaling", {{"rope_type", "yarn"}}, "\"factor\" is missing");
  expect_refused("rope_scaling", {{"rope_type", "yarn"}, {"factor", 0.5}}, "\"factor\"");
  expect_refused("rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}, {"rope_theta", 1.0}}, "\"rope_theta\"");
  expect_refused("rope_scaling", {{"rope_type", "linear"}}, "\"factor\" is missing");
  expect_refused("rope_scaling",
                 {{"rope_type", "llama3"},
                  {"factor", 8},
                  {"low_freq_factor", 4},
                  {"high_freq_factor", 4},
                  {"original_max_position_embeddings", 8192}},
                 "larger than \"low_freq_factor\"");
  expect_refused("partial_rotary_factor", 0.5, "\"partial_rotary_factor\"");
}

TEST(Config, RefusesTextThatIsNoObject) {
  for (const char* text : {"", "{", "[]", "3", "null", "\xff"})
    EXPECT_THROW(parse_config(text, "config.json"), InputError) << text;
}

}  // namespace
}  // namespace sluice
