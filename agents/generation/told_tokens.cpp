#include "agents/generation/told_tokens.h"

#include <utility>

#include "scripting/base/unicode.h"

namespace sluice {

int64_t whole_characters(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) {
    const int length = utf8_length(text, at);
    if (length == 0) break;
    at += static_cast<size_t>(length);
  }
  return count;
}

std::vector<ToldToken> place_prompt(const Tokenizer& tokenizer, std::span<const int32_t> prompt, std::string_view text) {
  constexpr size_t kLongestGap = 256;  // bytes of a text that no token tells to the letter
  std::vector<ToldToken> placed;
  placed.reserve(prompt.size());
  size_t counted = 0;  // bytes whose characters are
  int64_t characters = 0;
  size_t end = 0;  // of the token before
  for (const int32_t token : prompt) {
    const std::string bytes = tokenizer.bytes_of(token);
    size_t begin = end;
    const size_t found = bytes.empty() ? std::string_view::npos : text.substr(end, kLongestGap + bytes.size()).find(bytes);
    if (found != std::string_view::npos) {
      begin = end + found;
      end = begin + bytes.size();
    }
    while (counted < begin) {  // a token may begin within a character
      const auto length = static_cast<size_t>(utf8_length(text, counted));
      if (length == 0 || counted + length > begin) break;
      counted += length;
      ++characters;
    }
    ToldToken& told = placed.emplace_back();
    told.token = token;
    told.offset = characters;
  }
  return placed;
}

void ToldTokens::add(ToldToken token, std::string_view piece) {
  const std::string bytes = tokenizer_->bytes_of(token.token);
  const size_t before = piece.ends_with(bytes) ? piece.size() - bytes.size() : 0;  // a space between words
  token.offset = characters_ + whole_characters(piece.substr(0, before));
  waiting_.push_back({std::move(token), made_ + before});
  made_ += piece.size();
  characters_ += whole_characters(piece);
}

std::vector<ToldToken> ToldTokens::take(size_t bytes) {
  given_ += bytes;
  std::vector<ToldToken> told;
  for (; !waiting_.empty() && waiting_.front().begin < given_; waiting_.pop_front()) {
    told.push_back(std::move(waiting_.front().token));
  }
  return told;
}

std::vector<ToldToken> ToldTokens::take_rest() {
  std::vector<ToldToken> told;
  for (Waiting& waiting : std::exchange(waiting_, {})) told.push_back(std::move(waiting.token));
  return told;
}

}  // namespace sluice
