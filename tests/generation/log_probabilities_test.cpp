#include "agents/generation/log_probabilities.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "host/text/token_text.h"
#include "tests/support/small_gguf.h"
#include "tests/support/source_path.h"

namespace sluice::test {
namespace {

using Ids = std::vector<int32_t>;
using Json = nlohmann::json;

/// Every byte is a token; 256 is "ab", 257 "abc", 258 "<|begin|>", 259 "<|end|>", both special.
std::unique_ptr<Tokenizer> byte_tokens() {
  const std::string image = testing::small_gguf().image();
  return parse_tokenizer(parse_gguf(std::as_bytes(std::span(image)), "model.gguf"));
}

/// Tokens are words; spaces go between.
std::unique_ptr<Tokenizer> word_tokens() { return load_tokenizer(testing::source_path("host/models/mini").string()); }

ToldToken told(int32_t token, float log_probability, std::vector<LikelyToken> likely = {}) {
  ToldToken made;
  made.token = token;
  made.log_probability = log_probability;
  made.likely = std::move(likely);
  return made;
}

Ids ids_of(const std::vector<ToldToken>& tokens) {
  Ids ids;
  for (const ToldToken& each : tokens) ids.push_back(each.token);
  return ids;
}

std::vector<int64_t> offsets_of(const std::vector<ToldToken>& tokens) {
  std::vector<int64_t> offsets;
  for (const ToldToken& each : tokens) offsets.push_back(each.offset);
  return offsets;
}

TEST(LogProbabilities, NameTokensByTheirTextOrTheirBytes) {
  const auto tokenizer = byte_tokens();
  EXPECT_EQ(token_name(*tokenizer, 257), "abc");
  EXPECT_EQ(token_name(*tokenizer, '\n'), "\n");
  EXPECT_EQ(token_name(*tokenizer, 0xe2), R"(bytes:\xe2)");
  EXPECT_EQ(token_name(*tokenizer, 259), "<|end|>");
  EXPECT_EQ(token_name(*word_tokens(), 4), "key");
  EXPECT_EQ(token_name(*tokenizer, 100'000), "");
}

TEST(LogProbabilities, OfAChatListWhatOpenAiLists) {
  const auto tokenizer = byte_tokens();
  const std::vector<ToldToken> tokens = {told('"', -0.5, {{'"', -0.5}, {0xe2, -1.25}}),
                                         told(256, -std::numeric_limits<float>::infinity())};
  const Json wanted = Json::parse(R"({"content": [
    {"token": "\"", "logprob": -0.5, "bytes": [34], "top_logprobs": [
      {"token": "\"", "logprob": -0.5, "bytes": [34]}, {"token": "bytes:\\xe2", "logprob": -1.25, "bytes": [226]}]},
    {"token": "ab", "logprob": -9999, "bytes": [97, 98], "top_logprobs": []}], "refusal": null})");
  EXPECT_EQ(Json::parse(chat_log_probabilities(*tokenizer, tokens)), wanted);
  EXPECT_EQ(Json::parse(chat_log_probabilities(*tokenizer, {})), Json::parse(R"({"content": [], "refusal": null})"));
}

TEST(LogProbabilities, OfATextHoldTheTokenItself) {
  const auto tokenizer = byte_tokens();
  ToldToken first;
  first.token = 258;
  ToldToken second = told('b', -3, {{'a', -0.25}, {'c', -1}});
  second.offset = 7;
  const std::vector<ToldToken> tokens = {first, second, told('a', -0.25, {{'a', -0.25}})};
  const Json wanted = Json::parse(R"({"tokens": ["<|begin|>", "b", "a"], "token_logprobs": [null, -3, -0.25],
    "top_logprobs": [null, {"a": -0.25, "c": -1, "b": -3}, {"a": -0.25}], "text_offset": [0, 7, 0]})");
  EXPECT_EQ(Json::parse(text_log_probabilities(*tokenizer, tokens, false)), wanted);
  EXPECT_EQ(Json::parse(text_log_probabilities(*tokenizer, {}, true)).at("prompt_attention"), "dense");
}

TEST(LogProbabilities, TokensOfOneNameAreToldApart) {
  const std::string text = R"({"model": {"type": "BPE", "vocab": {"\u0120": 0, "x": 1}, "merges": []},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}, "decoder": {"type": "ByteLevel"},
    "added_tokens": [{"id": 2, "content": " ", "special": false}]})";
  const auto tokenizer = parse_tokenizer(text, "tokenizer.json");
  const std::vector<ToldToken> tokens = {told(2, -2, {{0, -0.5}, {2, -2}, {1, -3}}), told(0, -2, {{2, -0.5}})};
  const Json found = Json::parse(text_log_probabilities(*tokenizer, tokens, false));
  EXPECT_EQ(found.at("tokens"), Json({"token_id:2", "token_id:0"}));
  EXPECT_EQ(found.at("top_logprobs"), Json::parse(R"([{" ": -0.5, "token_id:2": -2, "x": -3}, {" ": -0.5, "token_id:0": -2}])"));
}

TEST(ToldTokens, StandWhereTheirTextStands) {
  const auto tokenizer = byte_tokens();
  const auto at = [&](const Ids& prompt, const std::string& text) { return offsets_of(place_prompt(*tokenizer, prompt, text)); };
  EXPECT_EQ(at({257, 'd', 256}, "abcdab"), (std::vector<int64_t>{0, 3, 4}));
  EXPECT_EQ(at({0xc3, 0xa9, 'x', 0xe2, 0x82, 0xac, 'y'}, "éx€y"), (std::vector<int64_t>{0, 0, 1, 2, 2, 2, 3})) << "characters";
  EXPECT_EQ(at({258, 'a', 259, 'b'}, "ab"), (std::vector<int64_t>{0, 0, 1, 1})) << "special tokens that the text has not";
  EXPECT_EQ(at({'a', 0xff, 'b'},
               "a\xef\xbf\xbd"
               "b"),
            (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(at({'a', 0xe2}, "a"), (std::vector<int64_t>{0, 1})) << "what is no whole character yet";
  const std::string words = "key \n acorn  = ";
  const auto mini = word_tokens();
  EXPECT_EQ(offsets_of(place_prompt(*mini, mini->encode(words), words)), (std::vector<int64_t>{0, 6, 13}));
}

TEST(ToldTokens, AreToldOnceWithTheFirstOfTheirText) {
  const auto tokenizer = byte_tokens();
  TokenText text(*tokenizer);
  ToldTokens tokens(*tokenizer);
  tokens.begin_behind(10);
  std::vector<ToldToken> all;
  const auto add = [&](int32_t token) {
    const std::string piece = text.add(token);
    tokens.add(told(token, -1), piece);
    std::vector<ToldToken> now = tokens.take(piece.size());
    all.insert(all.end(), now.begin(), now.end());
    return ids_of(now);
  };
  EXPECT_EQ(add('a'), Ids({'a'}));
  EXPECT_EQ(add(0xe2), Ids());
  EXPECT_EQ(add(0x82), Ids());
  EXPECT_EQ(add(0xac), Ids({0xe2, 0x82, 0xac}));
  EXPECT_EQ(add(259), Ids()) << "a special token has no text and goes with the next";
  EXPECT_EQ(add('b'), Ids({259, 'b'}));
  EXPECT_EQ(add(0xf0), Ids());
  EXPECT_EQ(ids_of(tokens.take_rest()), Ids({0xf0}));
  EXPECT_EQ(offsets_of(all), (std::vector<int64_t>{10, 11, 11, 11, 12, 12}));
}

TEST(ToldTokens, ThoseOfTextThatIsHeldBackWait) {
  const auto tokenizer = byte_tokens();
  ToldTokens tokens(*tokenizer);
  tokens.add(told(257, -1), "abc");
  tokens.add(told('d', -1), "d");
  EXPECT_EQ(ids_of(tokens.take(2)), Ids({257})) << "the rest of it may be of a stop string";
  EXPECT_EQ(ids_of(tokens.take(1)), Ids());
  EXPECT_EQ(ids_of(tokens.take(1)), Ids({'d'}));
  EXPECT_EQ(ids_of(tokens.take_rest()), Ids());
}

}  // namespace
}  // namespace sluice::test
