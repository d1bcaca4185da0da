#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "host/text/tokenizer.h"

namespace sluice {

/// A text that grows token by token, in whole characters: a token that ends in the middle of one waits for the next. Only the
/// tokens since the last piece are decoded, with those of that piece before them: they say whether a space goes between.
class TokenText {
 public:
  explicit TokenText(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// The text goes on behind these tokens, which were told already. Before any other.
  void begin_behind(std::span<const int32_t> tokens);
  /// The text of `tokens`, behind which it goes on. What they begin of a character waits for the rest. Before any other.
  std::string begin_with(std::span<const int32_t> tokens);
  /// What `token` adds to the text.
  std::string add(int32_t token);
  /// What is left: there are no more tokens, so half a character becomes U+FFFD.
  std::string end() { return take(true); }

 private:
  std::string take(bool all);

  const Tokenizer& tokenizer_;
  std::vector<int32_t> tokens_;  // of the last piece, then newer ones
  size_t given_tokens_ = 0;      // how many of them were in that piece
  size_t given_ = 0;             // bytes of their text
};

}  // namespace sluice
