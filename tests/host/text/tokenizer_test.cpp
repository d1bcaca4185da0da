#include "host/text/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "host/text/byte_alphabet.h"
#include "scripting/base/error.h"
#include "scripting/base/unicode.h"

namespace sluice {
namespace {

const std::string kSource = SLUICE_SOURCE_DIR;

/// Expectations made by Hugging Face tokenizers: text, ids, the ids' text with and without special tokens.
void expect_golden(const std::string& directory, const std::string& cases) {
  const auto tokenizer = load_tokenizer(kSource + directory);
  const nlohmann::json golden = nlohmann::json::parse(std::ifstream(kSource + cases));
  ASSERT_GE(golden["cases"].size(), 15U);
  for (const nlohmann::json& entry : golden["cases"]) {
    const auto ids = entry["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer->encode(entry["text"].get<std::string>()), ids) << entry["text"];
    EXPECT_EQ(tokenizer->decode(ids, false), entry["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer->decode(ids, true), entry["plain"].get<std::string>());
  }
}

TEST(Tokenizer, AgreesWithHuggingFaceOnQwenBytePairs) { expect_golden("/tests/goldens/bpe", "/tests/goldens/bpe.json"); }
TEST(Tokenizer, AgreesWithHuggingFaceOnGpt2BytePairs) {
  expect_golden("/tests/goldens/gpt2_bpe", "/tests/goldens/gpt2_bpe.json");
}
TEST(Tokenizer, AgreesWithHuggingFaceOnWords) { expect_golden("/host/models/mini", "/tests/goldens/wordlevel.json"); }

/// A byte-level tokenizer of single characters and a few merges, with `change` merged into its document.
std::unique_ptr<Tokenizer> small_tokenizer(const std::string& change) {
  nlohmann::json document = nlohmann::json::parse(R"({
    "added_tokens": [], "normalizer": null, "post_processor": null, "decoder": {"type": "ByteLevel"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "bc": 5, "Ġ": 6}, "merges": ["b c", "a b", "a bc"]}})");
  document.merge_patch(nlohmann::json::parse(change));
  return parse_tokenizer(document.dump(), "small.json");
}

using Ids = std::vector<int32_t>;

TEST(Tokenizer, MergesTheBestRankFirst) { EXPECT_EQ(small_tokenizer("{}")->encode("abc"), (Ids{4})); }

TEST(Tokenizer, TakesWholeWordsWhereMergesAreIgnored) {
  // "abc" cannot be reached by merges here, but is a token.
  const std::string merges = R"("merges": ["a b"])";
  EXPECT_EQ(small_tokenizer(R"({"model": {)" + merges + "}}")->encode("abc"), (Ids{3, 2}));
  EXPECT_EQ(small_tokenizer(R"({"model": {"ignore_merges": true, )" + merges + "}}")->encode("abc"), (Ids{4}));
}

TEST(Tokenizer, PutsTemplateTokensAround) {
  const auto tokenizer = small_tokenizer(R"({"post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "S", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"S": {"id": "S", "ids": [9], "tokens": ["S"]}}}})");
  EXPECT_EQ(tokenizer->encode("ab"), (Ids{9, 3}));
}

TEST(Tokenizer, FindsTheLongestAddedToken) {
  const auto tokenizer = small_tokenizer(R"({"added_tokens": [
    {"id": 10, "content": "<x>", "special": true}, {"id": 11, "content": "<x><y>", "special": true}]})");
  EXPECT_EQ(tokenizer->encode("a<x><y>b<x>"), (Ids{0, 11, 1, 10}));
  EXPECT_EQ(tokenizer->decode(Ids{0, 11, 1, 10}), "ab");
}

TEST(Tokenizer, StripsSpaceBesideAddedTokens) {
  const auto tokenizer = small_tokenizer(R"({"added_tokens": [
    {"id": 10, "content": "<l>", "lstrip": true, "special": true}, {"id": 11, "content": "<r>", "rstrip": true, "special": true}]})");
  EXPECT_EQ(tokenizer->encode("a  <l> a"), (Ids{0, 10, 6, 0}));
  EXPECT_EQ(tokenizer->encode("a <r>  a"), (Ids{0, 6, 11, 0}));
}

TEST(Tokenizer, FindsSingleWordsOnlyAlone) {
  const auto tokenizer =
      small_tokenizer(R"({"added_tokens": [{"id": 10, "content": "ca", "single_word": true, "special": true}]})");
  EXPECT_EQ(tokenizer->encode("ca"), (Ids{10}));
  EXPECT_EQ(tokenizer->encode("cab"), (Ids{2, 3}));
}

TEST(Tokenizer, ReplacesInvalidBytes) {
  EXPECT_EQ(valid_utf8("a\xff"
                       "b"),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(valid_utf8("\xe2\x82"), "\xef\xbf\xbd");                              // cut short: one replacement
  EXPECT_EQ(valid_utf8("\xf0\x80\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // overlong: one for each byte
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // a surrogate
}

TEST(Tokenizer, ByteAlphabetIsOneToOne) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(from_byte_characters(to_byte_characters(all)), all);
  EXPECT_EQ(from_byte_characters("<|✓|>"), "<|✓|>");
}

void expect_refused(const std::string& change, const std::string& part) {
  try {
    small_tokenizer(change);
    FAIL() << change << " was accepted";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("small.json"), std::string::npos) << error.what();
  }
}

TEST(Tokenizer, NamesWhatItDoesNotSupport) {
  expect_refused(R"({"model": {"type": "Unigram"}})", "Unigram");
  expect_refused(R"({"pre_tokenizer": {"type": "Metaspace"}})", "Metaspace");
  expect_refused(R"({"pre_tokenizer": null})", "ByteLevel");
  expect_refused(R"({"normalizer": {"type": "Lowercase"}})", "Lowercase");
  expect_refused(R"({"decoder": {"type": "WordPiece"}})", "WordPiece");
  expect_refused(R"({"model": {"byte_fallback": true}})", "byte_fallback");
  expect_refused(R"({"model": {"merges": ["a z"]}})", "z");
  expect_refused(R"({"model": {"merges": [3]}})", "merges[0]");
  expect_refused(R"({"model": {"vocab": {"a": -4}}})", "-4");
  expect_refused(R"({"model": {"vocab": {"a": 4194304}}})", "4194304");
  expect_refused(R"({"added_tokens": [{"id": 1073741824, "content": "<x>"}]})", "added_tokens[0]: \"id\" is 1073741824");
  expect_refused(R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}})",
                 "regular expression");
}

TEST(Tokenizer, RefusesATokenWithTwoIds) {
  expect_refused(R"({"added_tokens": [{"id": 4000000, "content": "<x>"}, {"id": 10, "content": "<x>"}]})",
                 "the token \"<x>\" has two ids, 4000000 and 10");
  expect_refused(R"({"added_tokens": [{"id": 10, "content": "ab"}]})", "the token \"ab\" has two ids, 3 and 10");
}

TEST(Tokenizer, RefusesAnIdWithTwoTokens) {
  expect_refused(R"({"added_tokens": [{"id": 10, "content": "<y>"}, {"id": 10, "content": "<x>"}]})",
                 "the id 10 has two tokens, \"<x>\" and \"<y>\"");
  expect_refused(R"({"added_tokens": [{"id": 3, "content": "<x>"}]})", "the id 3 has two tokens, \"<x>\" and \"ab\"");
  expect_refused(R"({"model": {"vocab": {"d": 5}}})", "the id 5 has two tokens, \"bc\" and \"d\"");
}

TEST(Tokenizer, TakesATokenThatIsListedTwice) {
  const auto tokenizer = small_tokenizer(R"({"added_tokens": [
    {"id": 4, "content": "abc", "special": true}, {"id": 9, "content": "<x>"}, {"id": 9, "content": "<x>"}]})");
  EXPECT_EQ(tokenizer->encode("abc<x>"), (Ids{4, 9}));
  EXPECT_EQ(tokenizer->vocabulary(), 10);
}

TEST(Tokenizer, KeepsMessagesShort) {
  const std::string longest(100000, 'x');
  for (const std::string& change :
       {R"({"model": {"vocab": {")" + longest + R"(": -1}}})", R"({"model": {"vocab": {"a": ")" + longest + R"("}}})",
        R"({"model": {"merges": [")" + longest + R"("]}})", R"({"model": {"merges": ["a )" + longest + R"("]}})",
        R"({"added_tokens": [{"id": 10, "content": ")" + longest + R"("}, {"id": 11, "content": ")" + longest + R"("}]})",
        R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "()" + longest + R"("}, "behavior": "Isolated"}})"}) {
    try {
      small_tokenizer(change);
      FAIL() << change.substr(0, 40) << " was accepted";
    } catch (const InputError& error) {
      EXPECT_LT(std::string(error.what()).size(), 500U) << change.substr(0, 40);
    }
  }
}

TEST(Tokenizer, RefusesTextThatIsNotJson) { EXPECT_THROW(parse_tokenizer("{", "broken.json"), InputError); }

}  // namespace
}  // namespace sluice
