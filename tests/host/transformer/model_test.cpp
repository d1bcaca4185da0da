// Whole models against a float64 transformer written from the definition (tiny_model.cpp).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "host/serving/engine.h"
#include "host/transformer/model.h"
#include "scripting/base/error.h"
#include "tests/host/transformer/tiny_model.h"

namespace sluice {
namespace {

using testing::TemporaryDirectory;
using testing::TinyModel;

std::vector<int32_t> some_tokens(int count, int vocabulary) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * 37 + i * i % 11) % vocabulary);
  return tokens;
}

void expect_logits(const TinyModel& tiny, const std::vector<double>& frequencies = {}) {
  const TemporaryDirectory directory;
  tiny.write(directory.path());
  const auto device = create_cpu_device({2});
  const auto model = load_model(directory.path(), *device);
  EngineOptions options;
  options.kv = DataType::kF32;
  options.pages = 16;
  options.max_batch = 2;
  options.max_pass_tokens = 24;  // so that the prompt comes in chunks
  Engine engine(*device, *model, nullptr, options);
  Request request;
  request.prompt = some_tokens(70, tiny.vocabulary);
  request.max_tokens = 6;
  request.ignore_eos = true;
  request.want_logits = true;
  engine.submit(request);
  const RequestResult result = engine.run_all().at(0);

  std::vector<int> all(request.prompt.begin(), request.prompt.end());
  all.insert(all.end(), result.tokens.begin(), result.tokens.end());
  const std::vector<double> expected = tiny.logits(all, frequencies);
  ASSERT_EQ(result.logits.size(), expected.size());
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) largest = std::max(largest, std::abs(expected[i] - result.logits[i]));
  EXPECT_LT(largest, 1e-3);
  const auto columns = static_cast<size_t>(tiny.vocabulary);
  for (size_t i = 0; i < result.tokens.size(); ++i) {
    const auto row = expected.begin() + static_cast<ptrdiff_t>((request.prompt.size() - 1 + i) * columns);
    EXPECT_EQ(result.tokens[i], std::max_element(row, row + tiny.vocabulary) - row);
  }
}

TEST(Model, RefusesTooManyHeadsBeforeItReadsWeights) {
  for (const int heads : {17, 129}) {
    TinyModel tiny;
    tiny.kv_heads = 2;
    tiny.query_heads = tiny.kv_heads * heads;
    const TemporaryDirectory directory;
    testing::write_text(directory.file("config.json"), tiny.config_json());  // and no weights
    const auto device = create_cpu_device({1});
    try {
      load_model(directory.path(), *device);
      FAIL() << heads << " were accepted";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what())
                    .find(std::to_string(heads) + " query heads share a KV head; device \"cpu\" attends for at most 16"),
                std::string::npos)
          << error.what();
      EXPECT_FALSE(error.hint().empty());
    }
  }
}

TEST(Model, Qwen3AgreesWithDefinition) {
  TinyModel tiny;
  tiny.draw();
  expect_logits(tiny);
}

TEST(Model, UntiedQwen3WithOneKvHeadAgreesWithDefinition) {
  TinyModel tiny;
  tiny.tied = false;
  tiny.kv_heads = 1;
  tiny.theta = 500000;
  tiny.draw();
  expect_logits(tiny);
}

TEST(Model, LlamaAgreesWithDefinition) {
  TinyModel tiny;
  tiny.architecture = "LlamaForCausalLM";
  tiny.kv_heads = 4;
  tiny.tied = false;
  tiny.draw();
  expect_logits(tiny);
}

TEST(Model, LinearRopeScalingDividesFrequencies) {
  TinyModel tiny;
  tiny.architecture = "LlamaForCausalLM";
  tiny.rope_extra = R"(, "rope_scaling": {"type": "linear", "factor": 4.0})";
  tiny.draw();
  std::vector<double> frequencies;
  for (int i = 0; i < tiny.head_dim / 2; ++i) frequencies.push_back(std::pow(tiny.theta, -2.0 * i / tiny.head_dim) / 4);
  expect_logits(tiny, frequencies);
}

TEST(Model, Llama3RopeScalingBlendsFrequencies) {
  TinyModel tiny;
  tiny.architecture = "LlamaForCausalLM";
  tiny.rope_extra =
      R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 512})";
  tiny.draw();
  // By wave lengths, as the scheme is published: short waves stay, long ones are stretched, those between are blended.
  std::vector<double> frequencies;
  for (int i = 0; i < tiny.head_dim / 2; ++i) {
    const double frequency = std::pow(tiny.theta, -2.0 * i / tiny.head_dim);
    const double wave = 2 * std::numbers::pi / frequency;
    const double blend = std::clamp((512.0 / wave - 1.0) / 3.0, 0.0, 1.0);
    frequencies.push_back(blend * frequency + (1 - blend) * frequency / 8);
  }
  expect_logits(tiny, frequencies);
}

class BrokenModel : public ::testing::Test {
 protected:
  std::string message_of_load() {
    tiny_.write(directory_.path());
    const auto device = create_cpu_device({1});
    try {
      load_model(directory_.path(), *device);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  }
  void SetUp() override { tiny_.draw(); }

  TemporaryDirectory directory_;
  TinyModel tiny_;
};

TEST_F(BrokenModel, NamesMissingTensor) {
  tiny_.weights.erase("model.layers.1.mlp.up_proj.weight");
  EXPECT_NE(message_of_load().find("\"model.layers.1.mlp.up_proj.weight\" is missing"), std::string::npos);
}

TEST_F(BrokenModel, NamesTensorOfWrongShape) {
  tiny_.weights["model.norm.weight"].push_back(1);
  EXPECT_NE(message_of_load().find("\"model.norm.weight\" has shape [49], but config.json makes it [48]"), std::string::npos);
}

TEST_F(BrokenModel, NamesTensorWithoutPlace) {
  tiny_.weights["model.layers.0.self_attn.q_proj.bias.norm"] = {1, 2, 3};
  EXPECT_NE(message_of_load().find("q_proj.bias.norm\" [3] has no place in a Qwen3ForCausalLM"), std::string::npos);
}

TEST_F(BrokenModel, SaysThatThereIsNoModel) {
  const auto device = create_cpu_device({1});
  EXPECT_THROW(load_model(directory_.file("nowhere"), *device), InputError);
}

}  // namespace
}  // namespace sluice
