// Logits and greedy continuations of Hugging Face transformers (float32), made by host/models/mini/goldens.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "host/serving/engine.h"
#include "host/weights/safetensors.h"
#include "scripting/base/mapped_file.h"

namespace sluice {
namespace {

const std::string kGoldens = SLUICE_SOURCE_DIR "/tests/goldens/";

void expect_agreement(const std::string& directory, const std::string& golden) {
  const nlohmann::json cases = nlohmann::json::parse(read_text_file(kGoldens + golden + ".json"))["prompts"];
  const SafetensorsFile expected = SafetensorsFile::open(kGoldens + golden + "_logits.safetensors");
  const auto device = create_cpu_device();
  const auto model = load_model(directory, *device);
  const auto vocabulary = static_cast<size_t>(model->config().vocabulary);
  EngineOptions options;
  options.kv = DataType::kF32;
  options.max_batch = 4;
  Engine engine(*device, *model, nullptr, options);

  ASSERT_FALSE(cases.empty());
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::vector<int32_t> greedy = cases[i]["greedy"];
    Request request;
    request.prompt = cases[i]["ids"].get<std::vector<int32_t>>();
    request.max_tokens = static_cast<int>(greedy.size());
    request.ignore_eos = true;
    request.want_logits = true;
    engine.submit(request);
    const RequestResult result = engine.run_all().at(0);
    EXPECT_EQ(result.tokens, greedy) << golden << " prompt " << i;

    const StoredTensor& tensor = expected.at("logits." + std::to_string(i));
    const std::vector<float> logits = tensor.to_f32();
    const size_t first = cases[i]["first_position"].get<size_t>() * vocabulary;
    ASSERT_LE(first + logits.size(), result.logits.size());
    float largest = 0;
    for (size_t j = 0; j < logits.size(); ++j) largest = std::max(largest, std::abs(logits[j] - result.logits[first + j]));
    EXPECT_LT(largest, 2e-3F) << golden << " prompt " << i;
  }
}

TEST(GoldenModel, TinyQwen3AgreesWithTransformers) { expect_agreement(kGoldens + "tiny_qwen3", "tiny_qwen3"); }

TEST(GoldenModel, LayersWithWindowsAgreeWithTransformers) {
  for (const char* name : {"tiny_qwen3_types", "tiny_qwen3_upper", "tiny_mistral"}) expect_agreement(kGoldens + name, name);
}

TEST(GoldenModel, MiniAgreesWithTransformers) { expect_agreement(SLUICE_SOURCE_DIR "/host/models/mini", "mini"); }

}  // namespace
}  // namespace sluice
