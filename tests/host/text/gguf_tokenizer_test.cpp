#include "host/text/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "host/text/tokenizer.h"
#include "scripting/base/error.h"
#include "tests/support/real_model.h"
#include "tests/support/small_gguf.h"

namespace sluice {
namespace {

using testing::GgufWriter;
using testing::small_gguf;
using Ids = std::vector<int32_t>;

std::unique_ptr<Tokenizer> tokenizer_of(const GgufWriter& writer) {
  const std::string image = writer.image();
  return parse_tokenizer(parse_gguf(std::as_bytes(std::span(image)), "model.gguf"));
}

nlohmann::json document_of(const GgufWriter& writer) {
  const std::string image = writer.image();
  return gguf_tokenizer(parse_gguf(std::as_bytes(std::span(image)), "model.gguf"));
}

void expect_refused(const GgufWriter& writer, const std::string& why) {
  try {
    tokenizer_of(writer);
    ADD_FAILURE() << "accepted: " << why;
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).rfind("model.gguf: ", 0), 0U) << error.what();
  }
}

TEST(GgufTokenizer, MergesAndFindsAddedTokens) {
  const auto tokenizer = tokenizer_of(small_gguf());
  EXPECT_EQ(tokenizer->encode("abcab"), (Ids{257, 256}));
  EXPECT_EQ(tokenizer->encode("<|end|><think>b"), (Ids{259, 260, 'b'}));
  EXPECT_EQ(tokenizer->decode(Ids{259, 260, 'b'}), "<think>b");
  EXPECT_EQ(tokenizer->decode(Ids{259, 260, 'b'}, false), "<|end|><think>b");
  EXPECT_EQ(tokenizer->encode("[PAD]").size(), 5U) << "an unused token is none";
  EXPECT_EQ(tokenizer->id_of("<|begin|>"), 258);
}

TEST(GgufTokenizer, PutsTokensAroundATextIfTheFileSaysSo) {
  GgufWriter writer = small_gguf();
  EXPECT_EQ(tokenizer_of(writer)->encode("b"), (Ids{'b'}));
  writer.put("tokenizer.ggml.add_bos_token", true);
  writer.put("tokenizer.ggml.add_eos_token", true);
  EXPECT_EQ(tokenizer_of(writer)->encode("b"), (Ids{258, 'b', 259}));
  writer.drop("tokenizer.ggml.bos_token_id");
  expect_refused(writer, "tokenizer.ggml.bos_token_id is missing");
}

TEST(GgufTokenizer, BeginsTextsOfLlama3UnlessTheFileSaysNo) {
  GgufWriter writer = small_gguf();
  writer.put("tokenizer.ggml.pre", "llama-bpe");
  EXPECT_EQ(tokenizer_of(writer)->encode("b"), (Ids{258, 'b'}));
  writer.put("tokenizer.ggml.add_bos_token", false);
  EXPECT_EQ(tokenizer_of(writer)->encode("b"), (Ids{'b'}));
}

/// The vocabulary of a small file, and `more` tokens behind it.
GgufWriter with_tokens(const std::vector<std::string>& more) {
  GgufWriter writer = small_gguf();
  const nlohmann::json vocabulary = document_of(writer)["model"]["vocab"];
  size_t tokens = 0;
  for (const auto& [token, id] : vocabulary.items()) tokens = std::max(tokens, id.get<size_t>() + 1);
  std::vector<std::string> texts(tokens, "[PAD]");
  std::vector<int32_t> kinds(tokens, 5);
  for (const auto& [token, id] : vocabulary.items()) {
    texts[id.get<size_t>()] = token;
    kinds[id.get<size_t>()] = 1;
  }
  texts.insert(texts.end(), more.begin(), more.end());
  kinds.insert(kinds.end(), more.size(), 4);
  writer.put("tokenizer.ggml.tokens", texts);
  writer.put("tokenizer.ggml.token_type", kinds);
  return writer;
}

// What they cost must be in proportion to the model.
TEST(GgufTokenizer, RefusesMoreThanTheModelHasEmbeddingsFor) {
  EXPECT_NO_THROW(tokenizer_of(with_tokens({})));
  expect_refused(with_tokens(std::vector<std::string>(300, "more")), "at most");
  expect_refused(with_tokens({std::string(100000, 'x')}), "has 100000 bytes; at most 65536 are wanted");
  GgufWriter writer = small_gguf();
  writer.put("tokenizer.ggml.merges", std::vector<std::string>(20000, "a b"));
  expect_refused(writer, "tokenizer.ggml.merges is an array of 20000; at most");
}

/// "1" and "2" merge, and so do "12" and "3", wherever words do not keep them apart.
std::vector<std::string> words_of_digits(const std::string& pre, const std::string& text) {
  GgufWriter writer = small_gguf();
  nlohmann::json document = document_of(writer);
  std::vector<std::string> tokens;
  for (const auto& [token, id] : document["model"]["vocab"].items()) {
    const auto place = id.get<size_t>();
    if (place >= tokens.size()) tokens.resize(place + 1);
    tokens[place] = token;
  }
  std::vector<int32_t> kinds(tokens.size(), 1);
  tokens[256] = "12";  // in place of "ab" and "abc"
  tokens[257] = "123";
  tokens.emplace_back("1234");
  kinds.push_back(1);
  writer.put("tokenizer.ggml.tokens", tokens);
  writer.put("tokenizer.ggml.token_type", kinds);
  writer.put("tokenizer.ggml.merges", std::vector<std::string>{"1 2", "12 3", "123 4"});
  writer.put("tokenizer.ggml.pre", pre);
  writer.put("tokenizer.ggml.add_bos_token", false);
  const auto tokenizer = tokenizer_of(writer);
  std::vector<std::string> words;
  for (const int32_t id : tokenizer->encode(text)) words.push_back(tokenizer->decode(Ids{id}));
  return words;
}

TEST(GgufTokenizer, CutsDigitsAsTheFamilyDoes) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(words_of_digits("gpt-2", "1234"), (Words{"1234"}));
  EXPECT_EQ(words_of_digits("default", "1234"), (Words{"123", "4"}));
  EXPECT_EQ(words_of_digits("llama-bpe", "1234"), (Words{"123", "4"}));
  for (const char* pre : {"smollm", "starcoder", "refact", "qwen2"}) {
    EXPECT_EQ(words_of_digits(pre, "1234"), (Words{"1", "2", "3", "4"})) << pre;
  }
}

/// Qwen's own tokenizer, and its vocabulary through the metadata of a GGUF file.
TEST(GgufTokenizer, GivesQwensTokenizerBack) {
  const nlohmann::json original = nlohmann::json::parse(std::ifstream(SLUICE_SOURCE_DIR "/tests/goldens/bpe/tokenizer.json"));
  GgufWriter writer = small_gguf(151936);
  std::vector<std::string> tokens;
  std::vector<int32_t> kinds;
  const auto put = [&](const std::string& token, size_t id, int32_t kind) {
    if (id >= tokens.size()) tokens.resize(id + 1), kinds.resize(id + 1, 5);
    tokens[id] = token;
    kinds[id] = kind;
  };
  for (const auto& [token, id] : original["model"]["vocab"].items()) put(token, id.get<size_t>(), 1);
  for (const auto& token : original["added_tokens"]) {
    put(token["content"], token["id"].get<size_t>(), token["special"].get<bool>() ? 3 : 4);
  }
  std::vector<std::string> merges;
  for (const auto& merge : original["model"]["merges"]) {
    merges.push_back(merge.is_string() ? merge.get<std::string>()
                                       : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  writer.put("tokenizer.ggml.pre", "qwen2");
  writer.put("tokenizer.ggml.tokens", tokens);
  writer.put("tokenizer.ggml.token_type", kinds);
  writer.put("tokenizer.ggml.merges", merges);
  const nlohmann::json document = document_of(writer);
  EXPECT_EQ(document["pre_tokenizer"]["pretokenizers"][0]["pattern"], original["pre_tokenizer"]["pretokenizers"][0]["pattern"]);
  EXPECT_EQ(document["normalizer"], original["normalizer"]);
  const auto tokenizer = tokenizer_of(writer);
  const nlohmann::json golden = nlohmann::json::parse(std::ifstream(SLUICE_SOURCE_DIR "/tests/goldens/bpe.json"));
  for (const nlohmann::json& entry : golden["cases"]) {
    const auto ids = entry["ids"].get<Ids>();
    EXPECT_EQ(tokenizer->encode(entry["text"].get<std::string>()), ids) << entry["text"];
    EXPECT_EQ(tokenizer->decode(ids, true), entry["plain"].get<std::string>());
  }
}

TEST(GgufTokenizer, RefusesWhatItDoesNotKnow) {
  GgufWriter writer = small_gguf();
  writer.put("tokenizer.ggml.model", "llama");
  expect_refused(writer, "tokenizer.ggml.model is \"llama\"; \"gpt2\" (byte-level BPE) is supported");
  writer = small_gguf();
  writer.put("tokenizer.ggml.pre", "viking");
  expect_refused(writer, "tokenizer.ggml.pre is \"viking\"; how it cuts text is not known");
  for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
                          "tokenizer.ggml.merges"}) {
    writer = small_gguf();
    writer.drop(key);
    expect_refused(writer, std::string(key) + " is missing");
  }
}

TEST(GgufTokenizer, RefusesVocabulariesThatLie) {
  GgufWriter writer = small_gguf();
  writer.put("tokenizer.ggml.token_type", std::vector<int32_t>(3, 1));
  expect_refused(writer, "one for each of 262 tokens is wanted");
  writer.put("tokenizer.ggml.token_type", std::vector<int32_t>(262, 7));
  expect_refused(writer, "tokenizer.ggml.token_type[0] is 7; 1 to 6 are known");
  writer = small_gguf();
  writer.put("tokenizer.ggml.tokens", std::vector<std::string>(262, "a"));
  expect_refused(writer, "\"a\" has two ids, 0 and 1");
  writer = small_gguf();
  writer.put("tokenizer.ggml.merges", std::vector<std::string>{"a nowhere"});
  expect_refused(writer, "is not in the vocabulary");
  writer.put("tokenizer.ggml.merges", std::vector<std::string>{"a\xff"});
  expect_refused(writer, "which is no UTF-8");
  writer = small_gguf();
  writer.put("tokenizer.ggml.add_eos_token", true);
  writer.put("tokenizer.ggml.eos_token_id", uint32_t{262});
  expect_refused(writer, "tokenizer.ggml.eos_token_id is 262; an integer from 0 to 261 is wanted");
  for (const char* const name : {"bos", "eos", "unknown", "padding"}) {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    writer = small_gguf();
    writer.put(key, uint32_t{0x7fffffff});
    expect_refused(writer, key + " is 2147483647; an integer from 0 to 261 is wanted");
  }
}

TEST(GgufTokenizer, TellsTheChatTemplateAndItsTokens) {
  const std::string image = small_gguf().image();
  const GgufChat chat = gguf_chat(parse_gguf(std::as_bytes(std::span(image)), "model.gguf"));
  EXPECT_EQ(chat.chat_template, "{{ messages }}");
  EXPECT_EQ(chat.begin, "<|begin|>");
  EXPECT_EQ(chat.end, "<|end|>");
  EXPECT_EQ(chat.unknown, std::nullopt);
  EXPECT_EQ(chat.padding, std::nullopt);
}

TEST(GgufTokenizer, AgreesWithTransformersOnTheRealModel) {
  SLUICE_SKIP_WITHOUT_REAL_MODEL();
  const auto tokenizer = load_tokenizer(testing::real_model_file("SmolLM2-135M-Instruct.Q4_1.gguf"));
  const nlohmann::json expected = nlohmann::json::parse(std::ifstream(testing::real_model_file("smollm2.json")));
  for (const nlohmann::json& entry : expected["tokens"]) {
    EXPECT_EQ(tokenizer->encode(entry["text"].get<std::string>()), entry["ids"].get<Ids>()) << entry["text"];
  }
}

}  // namespace
}  // namespace sluice
