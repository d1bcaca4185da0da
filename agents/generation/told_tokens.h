#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/text/tokenizer.h"
#include "kernels/device/picks.h"

namespace sluice {

/// A token of an answer, and what the model gave to it.
struct ToldToken {
  int32_t token = 0;
  int64_t offset = 0;                    // characters of the answer's text before it
  std::optional<float> log_probability;  // none: the first of a prompt
  std::vector<LikelyToken> likely;       // in its place
};

/// The tokens of a prompt, and where they stand in `text`, which need not be what they say to the letter: a token that is not
/// found behind the one before it stands where that one ends.
std::vector<ToldToken> place_prompt(const Tokenizer& tokenizer, std::span<const int32_t> prompt, std::string_view text);

/// Tokens of a text that becomes whole piece by piece (TokenText) and is given out later (StopStrings). Each is told once: with
/// the first of its text or, where it has none, with the text that follows.
class ToldTokens {
 public:
  explicit ToldTokens(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  /// So many characters stand before the text. Before any other.
  void begin_behind(int64_t characters) { characters_ = characters; }
  /// `piece`: what became whole of the text with `token`, whose offset is set here.
  void add(ToldToken token, std::string_view piece);
  /// Tokens that are to be told now that so many bytes more are given out.
  std::vector<ToldToken> take(size_t bytes);
  /// All others: there is no more text.
  std::vector<ToldToken> take_rest();

 private:
  struct Waiting {
    ToldToken token;
    size_t begin = 0;  // of its text
  };

  const Tokenizer* tokenizer_;
  std::deque<Waiting> waiting_;
  size_t made_ = 0;   // bytes of the text that became whole
  size_t given_ = 0;  // and that were given out
  int64_t characters_ = 0;
};

/// Whole characters at the beginning of `text`.
int64_t whole_characters(std::string_view text);

}  // namespace sluice
