#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace sluice::test {
namespace {

TEST(Generate, StreamsTheTextThatJsonGivesWhole) {
  const std::vector<std::string> arguments = {
      "generate", "--prompt", "<bos> key acorn = amber ask acorn =", "--max-tokens", "40", "--ignore-eos"};
  std::vector<std::string> with_json = arguments;
  with_json.push_back("--json");
  const Ran whole = run_sluice(with_json);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const std::string text = nlohmann::json::parse(whole.out).at("text");
  EXPECT_GT(text.size(), 40U);
  EXPECT_EQ(run_sluice(arguments).out, text + "\n");
}

TEST(Generate, ReadsPromptsAndIdsFromFilesAndPipes) {
  const Folder folder;
  const std::string text = "<bos> key acorn = amber ask acorn =";
  const std::string prompt = folder.write("prompt", text + "\n");
  const std::string wanted = run_sluice({"generate", "--prompt", text, "--max-tokens", "4"}).out;
  ASSERT_FALSE(wanted.empty());
  EXPECT_EQ(run_sluice({"generate", "--prompt-file", prompt, "--max-tokens", "4"}).out, wanted);
  EXPECT_EQ(run_shell("\"$SLUICE\" generate --prompt-file - --max-tokens 4 < " + prompt).out, wanted);
  const std::string ids = run_sluice({"generate", "--ids", "1,20,30", "--max-tokens", "4"}).out;
  EXPECT_EQ(run_shell("\"$SLUICE\" generate --ids-file <(echo 1, 20; echo 30) --max-tokens 4").out, ids);
  EXPECT_EQ(run_sluice({"generate", "--ids", "1,20", "--ids", "30", "--max-tokens", "4"}).out, ids);
}

TEST(Generate, WarnsOfWordsThatTheTokenizerDoesNotKnow) {
  const auto warned = [](const std::string& prompt) { return run_sluice({"generate", "--prompt", prompt, "--max-tokens", "1"}); };
  const Ran none = warned("hello world");
  EXPECT_EQ(none.exit_code, 0) << none.err;
  EXPECT_EQ(none.err, "warning: 2 of 2 words are unknown to the tokenizer\n");
  EXPECT_EQ(warned("<bos> key hello = 01 <unk>").err, "warning: 1 of 6 words are unknown to the tokenizer\n");
  EXPECT_EQ(warned("<bos> key apple = 01 <unk>").err, "");
}

/// The mini model with an output layer of its own, whose embedding of `token` is NaN.
std::string break_embedding(const Folder& folder, int token) {
  const std::string model = folder.link_mini_model("model");
  const std::string weights = read_file(model + "/model.safetensors");
  uint64_t size = 0;
  std::memcpy(&size, weights.data(), sizeof(size));
  auto header = nlohmann::json::parse(weights.substr(8, size));
  std::string data = weights.substr(8 + size);
  auto embedding = header.at("model.embed_tokens.weight");
  const uint64_t begin = embedding.at("data_offsets").at(0);
  const uint64_t bytes = embedding.at("data_offsets").at(1).get<uint64_t>() - begin;
  const uint64_t row = bytes / embedding.at("shape").at(0).get<uint64_t>();
  embedding["data_offsets"] = {data.size(), data.size() + bytes};
  header["lm_head.weight"] = embedding;
  data += data.substr(begin, bytes);
  data[begin + token * row] = data[begin + token * row + 1] = '\xff';  // NaN in bfloat16
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  size = text.size();
  std::filesystem::remove(model + "/model.safetensors");
  folder.write("model/model.safetensors", std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text + data);
  auto config = nlohmann::json::parse(read_file(model + "/config.json"));
  config["tie_word_embeddings"] = false;
  std::filesystem::remove(model + "/config.json");
  folder.write("model/config.json", config.dump());
  return model;
}

TEST(Generate, EndsItsLineBeforeAnError) {
  const std::vector<std::string> arguments = {"generate", "--ids", "1,20,30", "--ignore-eos", "--max-tokens"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), more.begin(), more.end());
    return run_sluice(all);
  };
  const std::string first = with({"1"}).out;  // which the model then reads
  ASSERT_FALSE(first.empty());
  const Folder folder;
  const Ran broken = with({"2", "--model", break_embedding(folder, std::stoi(first))});
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_EQ(broken.out, first);
  EXPECT_NE(broken.err.find("logits are not finite"), std::string::npos) << broken.err;
}

}  // namespace
}  // namespace sluice::test
