#pragma once

#include <string>
#include <variant>
#include <vector>

#include "host/text/regex.h"
#include "scripting/base/json_object.h"

namespace sluice {

/// Cuts text into the words that a tokenizer's model sees one by one: "pre_tokenizer" of `tokenizer.json`.
/// Supported: Sequence, Split (isolated, removed), ByteLevel, Whitespace, WhitespaceSplit, Digits.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  /// Throws InputError naming a type or option that is not supported.
  explicit PreTokenizer(const JsonObject& description);

  std::vector<std::string> split(std::string text) const;
  /// True if words are written in the byte alphabet (host/text/byte_alphabet.h).
  bool byte_level() const { return byte_level_; }

 private:
  struct SplitStep {
    Regex pattern;
    bool keep_matches;
    bool keep_gaps;
  };
  struct PrefixSpaceStep {};
  struct ByteStep {};
  using Step = std::variant<SplitStep, PrefixSpaceStep, ByteStep>;

  void add(const JsonObject& description);
  void add_split(const JsonObject& description);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace sluice
