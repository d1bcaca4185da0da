#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scripting/base/json_object.h"

namespace sluice {

/// Far above real vocabularies; tables of tokens by id stay small.
constexpr int32_t kMaxTokenId = (1 << 22) - 1;

/// A token that is found in the text before anything else: "added_tokens" of `tokenizer.json`.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;   // found in the normalised text, not in the text as written
  bool strip_left = false;   // takes the white space before it
  bool strip_right = false;  // takes the white space after it
  bool single_word = false;  // counts only if no letter or digit touches it
};

/// Throws InputError naming `where` for a wrong entry.
std::vector<AddedToken> read_added_tokens(const nlohmann::json& entries, const std::string& where);

/// A piece of text: one added token, or text between them.
struct TextPiece {
  std::string_view text;
  const AddedToken* token = nullptr;
};

/// Finds added tokens in text, leftmost first and of those the longest.
class AddedTokenFinder {
 public:
  /// Looks for those of `tokens` whose `normalized` is as said; they must outlive this object.
  AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized);
  std::vector<TextPiece> split(std::string_view text) const;

 private:
  const AddedToken* match(std::string_view text, size_t at) const;

  std::array<std::vector<const AddedToken*>, 256> by_first_byte_;  // longest first
};

}  // namespace sluice
