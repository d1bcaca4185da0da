// A model directory that is damaged, or none, gives one clear message and exit code 1 at once.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/refused.h"

namespace sluice::test {
namespace {

std::string safetensors(const std::string& header) {
  std::string file;
  for (uint64_t size = header.size(), i = 0; i < 8; ++i) file += static_cast<char>(size >> (8 * i) & 255);
  return file + header;
}

/// The mini model with other weights.
Ran evaluate_with_weights(const std::string& weights) {
  const Folder folder;
  const std::string model = folder.link_mini_model("model");
  std::filesystem::remove(model + "/model.safetensors");
  folder.write("model/model.safetensors", weights);
  return run_sluice({"eval", "full", "--model", model});
}

TEST(BadModel, TruncatedWeightsAreRefused) {
  const std::string whole = read_file(SLUICE_SOURCE_DIR "/host/models/mini/model.safetensors");
  ASSERT_GT(whole.size(), 1000U);
  for (const size_t size : {size_t{0}, size_t{7}, size_t{500}, whole.size() / 2, whole.size() - 1}) {
    expect_refused(evaluate_with_weights(whole.substr(0, size)), "model.safetensors");
  }
}

TEST(BadModel, WeightsThatGiveNaNAreRefused) {
  std::string weights = read_file(SLUICE_SOURCE_DIR "/host/models/mini/model.safetensors");
  ASSERT_GT(weights.size(), 1000U);
  uint64_t header = 0;
  std::memcpy(&header, weights.data(), sizeof(header));
  const auto tensors = nlohmann::json::parse(weights.substr(8, header));
  const auto& norm = tensors.at("model.norm.weight");
  const uint64_t first = norm.at("data_offsets").at(0);
  const uint64_t last = norm.at("data_offsets").at(1);
  std::fill(weights.begin() + static_cast<ptrdiff_t>(8 + header + first),
            weights.begin() + static_cast<ptrdiff_t>(8 + header + last), '\x7f');  // 0x7f7f is finite in bfloat16
  weights[8 + header + first] = weights[8 + header + first + 1] = '\xff';          // and 0xffff is NaN
  const Folder folder;
  const std::string model = folder.link_mini_model("model");
  std::filesystem::remove(model + "/model.safetensors");
  folder.write("model/model.safetensors", weights);
  expect_refused(run_sluice({"eval", "full", "--model", model}), "logits are not finite");
  expect_refused(run_sluice({"generate", "--model", model, "--ids", "1,2,3"}), "logits are not finite");
  expect_refused(run_sluice({"generate", "--model", model, "--ids", "1,2,3", "--temperature", "1"}), "logits are not finite");
  EXPECT_EQ(run_sluice({"bench", "serve", "--model", model, "--seconds", "0", "--tokens", "32"}).exit_code, 1);
}

TEST(BadModel, WordsThatTheTokenizerLacksAreFoundBeforeAnythingRuns) {
  const Folder folder;
  const std::string model = folder.link_mini_model("model");
  auto vocabulary = nlohmann::json::parse(read_file(model + "/vocabulary.json"));
  vocabulary["filler"].push_back("unheard");
  std::filesystem::remove(model + "/vocabulary.json");
  folder.write("model/vocabulary.json", vocabulary.dump());
  auto tokenizer = nlohmann::json::parse(read_file(model + "/tokenizer.json"));
  tokenizer["model"].erase("unk_token");
  std::filesystem::remove(model + "/tokenizer.json");
  folder.write("model/tokenizer.json", tokenizer.dump());
  const Ran ran = run_sluice({"eval", "full", "--model", model});
  expect_refused(ran, "unheard");
  EXPECT_EQ(ran.out, "");
}

TEST(BadModel, LyingWeightsAreRefused) {
  for (
      const std::string header :
      {R"({"model.embed_tokens.weight":{"dtype":"BF16","shape":[1024,256],"data_offsets":[0,99999999999]}})",
       R"({"model.embed_tokens.weight":{"dtype":"BF16","shape":[1024,256],"data_offsets":[0,4]}})",
       R"({"model.embed_tokens.weight":{"dtype":"BF16","shape":[-1,256],"data_offsets":[0,0]}})",
       R"({"model.embed_tokens.weight":{"dtype":"BF16","shape":[9223372036854775807,9223372036854775807],"data_offsets":[0,0]}})",
       R"({"model.embed_tokens.weight":7})", "[]", "{"}) {
    expect_refused(evaluate_with_weights(safetensors(header)), "model.safetensors");
  }
  expect_refused(evaluate_with_weights(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}"), "model.safetensors");
}

TEST(BadModel, UnknownArchitectureIsRefusedByName) {
  const Folder folder;
  const std::string model = folder.link_mini_model("model");
  std::string config = read_file(model + "/config.json");
  const std::string name = "Qwen3ForCausalLM";
  ASSERT_NE(config.find(name), std::string::npos);
  config.replace(config.find(name), name.size(), "PerceiverForLM");
  const std::string type = "\"qwen3\"";
  if (config.find(type) != std::string::npos) config.replace(config.find(type), type.size(), "\"perceiver\"");
  std::filesystem::remove(model + "/config.json");
  folder.write("model/config.json", config);
  expect_refused(run_sluice({"eval", "full", "--model", model}), "PerceiverForLM");
}

TEST(BadModel, MissingDirectoryIsRefused) {
  expect_refused(run_sluice({"eval", "full", "--model", "/no/such/model"}), "/no/such/model");
  expect_refused(run_sluice({"generate", "--ids", "1", "--model", "./" + std::string(5000, 'm')}), "too long");
  expect_refused(run_sluice({"generate", "--ids", "1", "--model", "smollm"}), "there is no model \"smollm\"");
}

TEST(BadModel, VocabulariesThatAreNoneAreRefused) {
  const Folder folder;
  const std::string model = folder.link_mini_model("model");
  const std::string vocabulary = model + "/vocabulary.json";
  const std::vector<std::string> arguments = {"eval", "--dense-only", "--model", model};
  std::filesystem::remove(vocabulary);
  folder.write("model/vocabulary.json", std::string(300000, '[') + std::string(300000, ']'));
  expect_refused(run_sluice(arguments), "vocabulary.json: nested");
  std::filesystem::remove(vocabulary);
  ASSERT_EQ(mkfifo(vocabulary.c_str(), 0600), 0);
  expect_refused(run_sluice(arguments), "vocabulary.json: not a regular file");
  std::filesystem::remove(vocabulary);
  std::filesystem::create_directory(vocabulary);
  expect_refused(run_sluice(arguments), "vocabulary.json: not a regular file");
}

/// The mini model with another text in `file`.
Ran generate_with(const std::string& file, const std::string& text) {
  const Folder folder;
  const std::string model = folder.link_mini_model("model");
  std::filesystem::remove(model + "/" + file);
  folder.write("model/" + file, text);
  return run_sluice({"generate", "--prompt", "ask", "--max-tokens", "1", "--model", model});
}

TEST(BadModel, DeeplyNestedJsonIsRefused) {
  const std::string nested = std::string(300000, '[') + std::string(300000, ']');
  expect_refused(generate_with("generation_config.json", R"({"eos_token_id": )" + nested + "}"), "nested");
  expect_refused(generate_with("config.json", nested), "nested");
  expect_refused(generate_with("tokenizer.json", R"({"model": {"type": "WordLevel", "vocab": {"a": )" + nested + "}}}"),
                 "nested");
}

TEST(BadModel, PipesAndDirectoriesInPlaceOfFilesAreRefused) {
  for (const std::string file : {"config.json", "generation_config.json", "tokenizer.json", "model.safetensors"}) {
    const Folder folder;
    const std::string model = folder.link_mini_model("model");
    const std::vector<std::string> arguments = {"generate", "--prompt", "ask", "--model", model};
    std::filesystem::remove(model + "/" + file);
    ASSERT_EQ(mkfifo((model + "/" + file).c_str(), 0600), 0);
    expect_refused(run_sluice(arguments), file + ": not a regular file");
    std::filesystem::remove(model + "/" + file);
    std::filesystem::create_directory(model + "/" + file);
    expect_refused(run_sluice(arguments), file + ": not a regular file");
  }
}

}  // namespace
}  // namespace sluice::test
