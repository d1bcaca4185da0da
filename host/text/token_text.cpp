#include "host/text/token_text.h"

#include <algorithm>
#include <string_view>

namespace sluice {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace

std::string TokenText::begin_with(std::span<const int32_t> tokens) {
  constexpr size_t kMostBegun = 3;  // tokens: as many bytes of a character may be there without the last
  const std::string all = tokenizer_.decode(tokens);
  std::string text = all;
  size_t begun = 0;
  while (text.ends_with(kReplacement) && begun < std::min(tokens.size(), kMostBegun)) {
    text = tokenizer_.decode(tokens.first(tokens.size() - ++begun));
  }
  if (text.ends_with(kReplacement)) {  // it is no character, or stands there itself
    begun = 0;
    text = all;
  }
  begin_behind(tokens.first(tokens.size() - begun));
  for (const int32_t token : tokens.last(begun)) text += add(token);
  return text;
}

void TokenText::begin_behind(std::span<const int32_t> tokens) {
  constexpr size_t kPiece = 4;  // enough to say whether a space goes between
  const auto last = tokens.last(std::min(tokens.size(), kPiece));
  tokens_.assign(last.begin(), last.end());
  given_tokens_ = tokens_.size();
  given_ = tokenizer_.decode(tokens_).size();
}

std::string TokenText::add(int32_t token) {
  // A character has at most four bytes, and a token at least one. What does not become one by then never will, and waiting
  // for it would decode ever more tokens again and again.
  constexpr size_t kMostWaiting = 16;
  tokens_.push_back(token);
  return take(tokens_.size() - given_tokens_ > kMostWaiting);
}

std::string TokenText::take(bool all) {
  const std::string text = tokenizer_.decode(tokens_);
  if (text.size() <= given_ || (!all && std::string_view(text).ends_with(kReplacement))) return {};
  std::string piece = text.substr(given_);
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<ptrdiff_t>(given_tokens_));
  given_tokens_ = tokens_.size();
  given_ = tokenizer_.decode(tokens_).size();
  return piece;
}

}  // namespace sluice
