#include "host/text/pre_tokenizer.h"

#include <fmt/format.h>

#include "host/text/byte_alphabet.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

// The pattern of GPT-2: contractions, letters, numbers and other signs, each with the space before it.
constexpr const char* kByteLevelPattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string escaped(const std::string& literal) {
  std::string pattern;
  for (const char c : literal) {
    if (static_cast<unsigned char>(c) < 0x80 && std::isalnum(static_cast<unsigned char>(c)) == 0) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

void split_by(const Regex& pattern, bool keep_matches, bool keep_gaps, const std::string& word, std::vector<std::string>& out) {
  size_t at = 0;
  for (const auto& [start, end] : pattern.matches(word)) {
    if (keep_gaps && start > at) out.push_back(word.substr(at, start - at));
    if (keep_matches) out.push_back(word.substr(start, end - start));
    at = end;
  }
  if (keep_gaps && at < word.size()) out.push_back(word.substr(at));
}

}  // namespace

PreTokenizer::PreTokenizer(const JsonObject& description) { add(description); }

void PreTokenizer::add(const JsonObject& description) {
  const std::string& type = description.text("type");
  if (type == "Sequence") {
    const nlohmann::json& parts = description.array("pretokenizers");
    for (size_t i = 0; i < parts.size(); ++i)
      add(JsonObject(parts[i], fmt::format("{}, pretokenizers[{}]", description.where(), i)));
  } else if (type == "Split") {
    add_split(description);
  } else if (type == "ByteLevel") {
    if (description.boolean("add_prefix_space", true)) steps_.emplace_back(PrefixSpaceStep{});
    if (description.boolean("use_regex", true))
      steps_.emplace_back(SplitStep{Regex(kByteLevelPattern, description.where()), true, true});
    steps_.emplace_back(ByteStep{});
    byte_level_ = true;
  } else if (type == "WhitespaceSplit") {
    steps_.emplace_back(SplitStep{Regex(R"(\s+)", description.where()), false, true});
  } else if (type == "Whitespace") {
    steps_.emplace_back(SplitStep{Regex(R"(\w+|[^\w\s]+)", description.where()), true, false});
  } else if (type == "Digits") {
    const char* pattern = description.boolean("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)";
    steps_.emplace_back(SplitStep{Regex(pattern, description.where()), true, true});
  } else {
    description.refuse("type", "supported are Sequence, Split, ByteLevel, Whitespace, WhitespaceSplit and Digits");
  }
}

void PreTokenizer::add_split(const JsonObject& description) {
  const JsonObject pattern = description.object("pattern");
  const std::string* regex = pattern.find_text("Regex");
  Regex compiled(regex != nullptr ? *regex : escaped(pattern.text("String")), description.where());
  const std::string& behavior = description.text("behavior");
  const bool isolated = behavior == "Isolated";
  if (!isolated && behavior != "Removed") description.refuse("behavior", "supported are Isolated and Removed");
  const bool invert = description.boolean("invert", false);
  steps_.emplace_back(SplitStep{std::move(compiled), isolated || invert, isolated || !invert});
}

std::vector<std::string> PreTokenizer::split(std::string text) const {
  std::vector<std::string> words;
  if (!text.empty()) words.push_back(std::move(text));
  for (const Step& step : steps_) {
    std::vector<std::string> next;
    for (std::string& word : words) {
      if (const auto* split = std::get_if<SplitStep>(&step)) {
        split_by(split->pattern, split->keep_matches, split->keep_gaps, word, next);
      } else if (std::holds_alternative<PrefixSpaceStep>(step)) {
        next.push_back(word.front() == ' ' ? std::move(word) : ' ' + word);
      } else {
        next.push_back(to_byte_characters(word));
      }
    }
    words = std::move(next);
  }
  return words;
}

}  // namespace sluice
