// Tiny models as GGUF files against a float64 transformer written from the definition (tiny_model.cpp).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "host/serving/engine.h"
#include "host/transformer/model.h"
#include "scripting/base/error.h"
#include "tests/host/transformer/tiny_model.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/small_gguf.h"

namespace sluice {
namespace {

using testing::GgufWriter;
using testing::TemporaryDirectory;
using testing::TinyModel;

/// Rows as llama.cpp has them: those that are turned together side by side.
std::vector<float> paired(const std::vector<float>& rows, size_t columns, size_t head_dim) {
  std::vector<float> result;
  for (size_t row = 0; row < rows.size() / columns; ++row) {
    const size_t within = row % head_dim;
    const size_t source = row - within + within / 2 + within % 2 * (head_dim / 2);
    const auto first = rows.begin() + static_cast<ptrdiff_t>(source * columns);
    result.insert(result.end(), first, first + static_cast<ptrdiff_t>(columns));
  }
  return result;
}

GgufWriter gguf_of(const TinyModel& tiny) {
  const std::string name = tiny.qk_norm() ? "qwen3" : "llama";
  GgufWriter writer;
  writer.put("general.architecture", name);
  const auto put = [&](const char* key, int value) { writer.put(name + "." + key, static_cast<uint32_t>(value)); };
  put("block_count", tiny.layers);
  put("embedding_length", tiny.hidden);
  put("feed_forward_length", tiny.intermediate);
  put("attention.head_count", tiny.query_heads);
  put("attention.head_count_kv", tiny.kv_heads);
  put("attention.key_length", tiny.head_dim);
  put("attention.value_length", tiny.head_dim);
  put("context_length", tiny.max_positions);
  writer.put(name + ".attention.layer_norm_rms_epsilon", 1e-6F);
  writer.put(name + ".rope.freq_base", static_cast<float>(tiny.theta));
  const auto add = [&](const std::string& gguf, const std::string& huggingface, int columns) {
    std::vector<float> values = tiny.weights.at(huggingface);
    const auto width = static_cast<size_t>(columns);
    const bool is_turned = gguf.ends_with("attn_q.weight") || gguf.ends_with("attn_k.weight");
    if (is_turned && !tiny.qk_norm()) values = paired(values, width, static_cast<size_t>(tiny.head_dim));
    const std::vector<uint64_t> vector = {values.size()};
    const std::vector<uint64_t> matrix = {values.size() / width, width};
    writer.add(gguf, values.size() == width ? vector : matrix, values);
  };
  add("token_embd.weight", "model.embed_tokens.weight", tiny.hidden);
  add("output_norm.weight", "model.norm.weight", tiny.hidden);
  if (!tiny.tied) add("output.weight", "lm_head.weight", tiny.hidden);
  for (int layer = 0; layer < tiny.layers; ++layer) {
    const std::string gguf = fmt::format("blk.{}.", layer);
    const std::string huggingface = fmt::format("model.layers.{}.", layer);
    add(gguf + "attn_norm.weight", huggingface + "input_layernorm.weight", tiny.hidden);
    add(gguf + "ffn_norm.weight", huggingface + "post_attention_layernorm.weight", tiny.hidden);
    for (const char* part : {"q", "k", "v"}) {
      add(fmt::format("{}attn_{}.weight", gguf, part), fmt::format("{}self_attn.{}_proj.weight", huggingface, part), tiny.hidden);
      if (!tiny.qk_norm() || *part == 'v') continue;
      add(fmt::format("{}attn_{}_norm.weight", gguf, part), fmt::format("{}self_attn.{}_norm.weight", huggingface, part),
          tiny.head_dim);
    }
    add(gguf + "attn_output.weight", huggingface + "self_attn.o_proj.weight", tiny.query_heads * tiny.head_dim);
    add(gguf + "ffn_gate.weight", huggingface + "mlp.gate_proj.weight", tiny.hidden);
    add(gguf + "ffn_up.weight", huggingface + "mlp.up_proj.weight", tiny.hidden);
    add(gguf + "ffn_down.weight", huggingface + "mlp.down_proj.weight", tiny.intermediate);
  }
  return writer;
}

void expect_logits(const TinyModel& tiny, const GgufWriter& writer, const std::vector<double>& frequencies = {}) {
  const TemporaryDirectory directory;
  writer.write(directory.file("tiny.gguf"));
  const auto device = create_cpu_device({2});
  const auto model = load_model(directory.file("tiny.gguf"), *device);
  EngineOptions options;
  options.kv = DataType::kF32;
  options.pages = 16;
  options.max_batch = 1;
  Engine engine(*device, *model, nullptr, options);
  Request request;
  for (int i = 0; i < 50; ++i) request.prompt.push_back((i * 37 + i * i % 11) % tiny.vocabulary);
  request.max_tokens = 2;
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
  EXPECT_LT(largest, 2e-3);
}

TEST(GgufModel, LlamaAgreesWithDefinition) {
  TinyModel tiny;
  tiny.architecture = "LlamaForCausalLM";
  tiny.tied = false;
  tiny.draw();
  expect_logits(tiny, gguf_of(tiny));
}

TEST(GgufModel, Qwen3AgreesWithDefinition) {
  TinyModel tiny;
  tiny.theta = 1e6;
  tiny.draw();
  expect_logits(tiny, gguf_of(tiny));
}

TEST(GgufModel, LlamaWithFactorsOfFrequenciesAgreesWithDefinition) {
  TinyModel tiny;
  tiny.architecture = "LlamaForCausalLM";
  tiny.draw();
  std::vector<float> factors;
  std::vector<double> frequencies;
  for (int i = 0; i < tiny.head_dim / 2; ++i) {
    factors.push_back(1 + static_cast<float>(i) * 0.5F);
    frequencies.push_back(std::pow(tiny.theta, -2.0 * i / tiny.head_dim) / factors.back());
  }
  GgufWriter writer = gguf_of(tiny);
  writer.add("rope_freqs.weight", {factors.size()}, factors);
  expect_logits(tiny, writer, frequencies);
}

std::string message_of_load(const GgufWriter& writer) {
  const TemporaryDirectory directory;
  writer.write(directory.file("model.gguf"));
  const auto device = create_cpu_device({1});
  try {
    load_model(directory.file("model.gguf"), *device);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(GgufModel, NamesTensorsThatDoNotFit) {
  GgufWriter writer = testing::small_gguf();
  EXPECT_EQ(message_of_load(writer), "no error");
  writer.add("blk.0.attn_q.bias", {64}, std::vector<float>(64));
  EXPECT_NE(message_of_load(writer).find("\"model.layers.0.self_attn.q_proj.bias\" [64] has no place in a LlamaForCausalLM"),
            std::string::npos)
      << message_of_load(writer);
  writer = testing::small_gguf();
  writer.drop_tensor("blk.1.ffn_up.weight");
  EXPECT_NE(message_of_load(writer).find("\"model.layers.1.mlp.up_proj.weight\" is missing"), std::string::npos);
  writer = testing::small_gguf();
  writer.put("llama.feed_forward_length", uint32_t{128});
  EXPECT_NE(message_of_load(writer).find("has shape [96, 64], but the metadata makes it [128, 64]"), std::string::npos)
      << message_of_load(writer);
}

}  // namespace
}  // namespace sluice
