#include "host/text/gguf_tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "host/text/added_tokens.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr uint64_t kMostTokens = uint64_t{kMaxTokenId} + 1;
constexpr uint64_t kMostMerges = 16;  // for each token: converters of other kinds of files write all that make one

// The pattern of Llama 3 and Qwen 2, which differ in how many digits make a word.
constexpr const char* kWords =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json byte_level(bool cuts) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", cuts}};
}

Json split(const std::string& pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

Json sequence(Json parts) { return {{"type", "Sequence"}, {"pretokenizers", std::move(parts)}}; }

Json cut_as_gpt2() { return byte_level(true); }
Json cut_single_digits() { return sequence({{{"type", "Digits"}, {"individual_digits", true}}, byte_level(true)}); }
Json cut_as_llama3() { return sequence({split(fmt::format(kWords, R"(\p{N}{1,3})")), byte_level(false)}); }
Json cut_as_qwen2() { return sequence({split(fmt::format(kWords, R"(\p{N})")), byte_level(false)}); }

/// What llama.cpp does where a converter knew nothing better.
Json cut_by_default() {
  return sequence({split(R"([\p{P}\$\+<=>\^~\|]+)"),
                   split(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))"), split(R"(\p{N}+)"),
                   split("[0-9][0-9][0-9]"), byte_level(false)});
}

/// A tokenizer.ggml.pre, and what the tokenizers that it stands for have in common.
struct Family {
  std::string_view name;
  Json (*cut)();
  bool composes;     // NFC
  bool whole_words;  // a word that is a token needs no merges
  bool begins;       // texts begin with a token, unless the file says something else
};

constexpr std::array kFamilies = {
    Family{"default", cut_by_default, false, false, false},   Family{"gpt-2", cut_as_gpt2, false, false, false},
    Family{"smollm", cut_single_digits, false, false, false}, Family{"starcoder", cut_single_digits, false, false, false},
    Family{"refact", cut_single_digits, false, false, false}, Family{"qwen2", cut_as_qwen2, true, false, false},
    Family{"llama-bpe", cut_as_llama3, false, true, true},    Family{"llama-v3", cut_as_llama3, false, true, true},
    Family{"llama3", cut_as_llama3, false, true, true},
};

const Family& family_of(const GgufMetadata& metadata) {
  constexpr const char* kModel = "tokenizer.ggml.model";
  if (metadata.text(kModel) != "gpt2") {
    metadata.refuse(kModel, "\"gpt2\" (byte-level BPE) is supported", "give a Hugging Face directory, or another model");
  }
  const std::string_view name = metadata.text(kPre);
  const auto* const found =
      std::find_if(kFamilies.begin(), kFamilies.end(), [&](const Family& family) { return family.name == name; });
  if (found != kFamilies.end()) return *found;
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.name);
  metadata.refuse(kPre, "how it cuts text is not known", fmt::format("known are {}", fmt::join(names, ", ")));
}

/// Kinds of tokens, by the numbers of the format.
enum class TokenKind : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct Vocabulary {
  std::vector<std::string_view> tokens;
  std::vector<TokenKind> kinds;
};

/// Tokens that the file may name: none without an embedding.
uint64_t most_tokens(const Gguf& gguf) {
  const auto embeddings = gguf.tensors.find("token_embd.weight");
  if (embeddings == gguf.tensors.end() || embeddings->second.shape.empty()) return kMostTokens;
  return std::min<uint64_t>(kMostTokens, static_cast<uint64_t>(embeddings->second.shape.front()));
}

Vocabulary read_vocabulary(const Gguf& gguf) {
  constexpr const char* kKinds = "tokenizer.ggml.token_type";
  const GgufMetadata& metadata = gguf.metadata;
  Vocabulary vocabulary;
  vocabulary.tokens = metadata.texts(kTokens, most_tokens(gguf));
  for (const int64_t kind : metadata.integers(kKinds, vocabulary.tokens.size())) {
    if (kind < static_cast<int>(TokenKind::kNormal) || kind > static_cast<int>(TokenKind::kByte)) {
      throw InputError(fmt::format("{}: {}[{}] is {}; 1 to 6 are known", metadata.file(), kKinds, vocabulary.kinds.size(), kind));
    }
    vocabulary.kinds.push_back(static_cast<TokenKind>(kind));
  }
  if (vocabulary.kinds.size() != vocabulary.tokens.size()) {
    metadata.refuse(kKinds, fmt::format("one for each of {} tokens is wanted", vocabulary.tokens.size()));
  }
  return vocabulary;
}

Json ids_of(const Vocabulary& vocabulary, const std::string& file) {
  Json ids = Json::object();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.kinds[id] == TokenKind::kUnused) continue;
    const std::string token(vocabulary.tokens[id]);
    const auto [known, is_new] = ids.emplace(token, id);
    if (is_new) continue;
    throw InputError(fmt::format("{}: {}: {} has two ids, {} and {}", file, kTokens, excerpt(token), known->dump(), id));
  }
  return ids;
}

Json added_tokens(const Vocabulary& vocabulary) {
  Json added = Json::array();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const TokenKind kind = vocabulary.kinds[id];
    const bool is_special = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
    if (!is_special && kind != TokenKind::kUserDefined) continue;
    added.push_back({{"id", id},
                     {"content", vocabulary.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", is_special}});
  }
  return added;
}

/// The token whose id stands under `key`.
std::optional<int64_t> find_token(const GgufMetadata& metadata, const char* key, size_t tokens) {
  return metadata.find_integer(key, 0, static_cast<int64_t>(tokens) - 1);
}

constexpr std::array kNamedTokens = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                     "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id"};

/// A template that puts tokens before and after a text; null if there are none.
Json post_processor(const GgufMetadata& metadata, const Family& family, const Vocabulary& vocabulary) {
  Json single = Json::array();
  Json tokens = Json::object();
  const auto put = [&](const char* wanted, bool otherwise, const char* key) {
    if (!metadata.find_boolean(wanted).value_or(otherwise)) return;
    const auto id = find_token(metadata, key, vocabulary.tokens.size());
    if (!id) throw InputError(fmt::format("{}: {} is missing from the metadata; texts are to have it", metadata.file(), key));
    const std::string token(vocabulary.tokens[static_cast<size_t>(*id)]);
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    tokens[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
  };
  put("tokenizer.ggml.add_bos_token", family.begins, "tokenizer.ggml.bos_token_id");
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  put("tokenizer.ggml.add_eos_token", false, "tokenizer.ggml.eos_token_id");
  if (tokens.empty()) return nullptr;
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", Json::array()}, {"special_tokens", tokens}};
}

}  // namespace

Json gguf_tokenizer(const Gguf& gguf) {
  const GgufMetadata& metadata = gguf.metadata;
  const Family& family = family_of(metadata);
  const Vocabulary vocabulary = read_vocabulary(gguf);
  // Refused here, whoever reads them: not every use of a model needs each of them.
  for (const char* const key : kNamedTokens) find_token(metadata, key, vocabulary.tokens.size());
  Json document;
  document["version"] = "1.0";
  document["added_tokens"] = added_tokens(vocabulary);
  document["normalizer"] = family.composes ? Json{{"type", "NFC"}} : Json();
  document["pre_tokenizer"] = family.cut();
  document["post_processor"] = post_processor(metadata, family, vocabulary);
  document["decoder"] = byte_level(true);
  document["model"] = {{"type", "BPE"},
                       {"ignore_merges", family.whole_words},
                       {"vocab", ids_of(vocabulary, gguf.name)},
                       {"merges", metadata.texts("tokenizer.ggml.merges", kMostMerges * vocabulary.tokens.size())}};
  return document;
}

GgufChat gguf_chat(const Gguf& gguf) {
  const GgufMetadata& metadata = gguf.metadata;
  const std::vector<std::string_view> tokens = metadata.texts(kTokens, most_tokens(gguf));
  const auto token = [&](const char* key) -> std::optional<std::string> {
    const auto id = find_token(metadata, key, tokens.size());
    return id ? std::optional<std::string>(tokens[static_cast<size_t>(*id)]) : std::nullopt;
  };
  GgufChat chat;
  if (const auto text = metadata.find_text("tokenizer.chat_template")) chat.chat_template = *text;
  chat.begin = token("tokenizer.ggml.bos_token_id");
  chat.end = token("tokenizer.ggml.eos_token_id");
  chat.unknown = token("tokenizer.ggml.unknown_token_id");
  chat.padding = token("tokenizer.ggml.padding_token_id");
  return chat;
}

}  // namespace sluice
