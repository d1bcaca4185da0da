#include "agents/generation/log_probabilities.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "scripting/base/unicode.h"

namespace sluice {
namespace {

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

/// JSON knows no -inf, which a model gives to tokens that it rules out.
std::string number(float log_probability) {
  constexpr float kLeast = -9999;  // as OpenAI writes it
  return fmt::format("{}", std::max(log_probability, kLeast));
}

/// Texts of a list's items, by `write`.
template <class Items, class Write>
std::string list(const Items& items, Write write) {
  std::string text = "[";
  for (const auto& item : items) {
    if (text.size() > 1) text += ',';
    text += write(item);
  }
  return text + ']';
}

/// The members that a token and one of the most likely have in common.
std::string chat_members(const Tokenizer& tokenizer, int32_t token, float log_probability) {
  const std::string bytes =
      list(tokenizer.bytes_of(token), [](char byte) { return fmt::format("{}", static_cast<unsigned char>(byte)); });
  return fmt::format(R"("token":{},"logprob":{},"bytes":{})", quoted(token_name(tokenizer, token)), number(log_probability),
                     bytes);
}

/// The most likely tokens of a place and its own, by names that differ.
class NamedPlace {
 public:
  NamedPlace(const Tokenizer& tokenizer, const ToldToken& own) : tokenizer_(tokenizer) {
    for (const LikelyToken& likely : own.likely) add(likely.token, likely.log_probability, own.token);
    if (own_.empty()) add(own.token, own.log_probability.value_or(0), own.token);
  }
  const std::string& own() const { return own_; }
  std::string object() const {
    std::string text;
    for (const auto& [name, log_probability] : entries_) {
      text += fmt::format("{}{}:{}", text.empty() ? '{' : ',', name, number(log_probability));
    }
    return text + '}';
  }

 private:
  void add(int32_t token, float log_probability, int32_t own) {
    std::string name = quoted(token_name(tokenizer_, token));
    const bool taken = std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.first == name; });
    if (taken) name = fmt::format("\"token_id:{}\"", token);
    if (token == own) own_ = name;
    entries_.emplace_back(std::move(name), log_probability);
  }

  const Tokenizer& tokenizer_;
  std::vector<std::pair<std::string, float>> entries_;
  std::string own_;
};

}  // namespace

std::string token_name(const Tokenizer& tokenizer, int32_t token) {
  std::string bytes = tokenizer.bytes_of(token);
  if (valid_utf8(bytes) == bytes) return bytes;
  std::string name = "bytes:";
  for (const char byte : bytes) fmt::format_to(std::back_inserter(name), "\\x{:02x}", static_cast<unsigned char>(byte));
  return name;
}

std::string chat_log_probabilities(const Tokenizer& tokenizer, std::span<const ToldToken> tokens) {
  const std::string content = list(tokens, [&](const ToldToken& token) {
    const std::string likely = list(token.likely, [&](const LikelyToken& each) {
      return fmt::format("{{{}}}", chat_members(tokenizer, each.token, each.log_probability));
    });
    return fmt::format(R"({{{},"top_logprobs":{}}})", chat_members(tokenizer, token.token, token.log_probability.value_or(0)),
                       likely);
  });
  return fmt::format(R"({{"content":{},"refusal":null}})", content);
}

std::string text_log_probabilities(const Tokenizer& tokenizer, std::span<const ToldToken> tokens, bool has_prompt) {
  std::vector<std::string> names;
  std::vector<std::string> likely;
  for (const ToldToken& token : tokens) {
    const NamedPlace place(tokenizer, token);
    names.push_back(place.own());
    likely.push_back(token.log_probability ? place.object() : "null");
  }
  const auto as_it_is = [](const std::string& text) { return text; };
  return fmt::format(
      R"({{"tokens":{},"token_logprobs":{},"top_logprobs":{},"text_offset":{}{}}})", list(names, as_it_is),
      list(tokens, [](const ToldToken& token) { return token.log_probability ? number(*token.log_probability) : "null"; }),
      list(likely, as_it_is), list(tokens, [](const ToldToken& token) { return fmt::format("{}", token.offset); }),
      has_prompt ? R"(,"prompt_attention":"dense")" : "");
}

}  // namespace sluice
