#include "host/text/added_tokens.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

#include "scripting/base/unicode.h"

namespace sluice {
namespace {

/// True for the characters that regular expressions call \w.
bool is_word(utf8proc_int32_t code_point) {
  const utf8proc_category_t category = utf8proc_category(code_point);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO) || category == UTF8PROC_CATEGORY_PC;
}

bool word_starts_at(std::string_view text, size_t at) {
  if (at >= text.size()) return false;
  utf8proc_int32_t code_point = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at);
  return utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - at), &code_point) > 0 && is_word(code_point);
}

size_t start_of_character_before(std::string_view text, size_t at) {
  size_t start = at - 1;
  while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xc0) == 0x80) --start;
  return start;
}

bool stands_alone(std::string_view text, size_t start, size_t end) {
  if (start > 0 && word_starts_at(text, start_of_character_before(text, start))) return false;
  return !word_starts_at(text, end);
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const nlohmann::json& entries, const std::string& where) {
  std::vector<AddedToken> tokens;
  for (size_t i = 0; i < entries.size(); ++i) {
    const JsonObject entry(entries[i], fmt::format("{}, added_tokens[{}]", where, i));
    AddedToken token;
    token.id = static_cast<int32_t>(entry.integer("id", 0, kMaxTokenId));
    token.content = entry.text("content");
    if (token.content.empty()) entry.refuse("content", "it must not be empty");
    token.special = entry.boolean("special", false);
    token.normalized = entry.boolean("normalized", !token.special);
    token.strip_left = entry.boolean("lstrip", false);
    token.strip_right = entry.boolean("rstrip", false);
    token.single_word = entry.boolean("single_word", false);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized) {
  for (const AddedToken& token : tokens) {
    if (token.normalized == normalized) by_first_byte_[static_cast<uint8_t>(token.content.front())].push_back(&token);
  }
  for (auto& bucket : by_first_byte_) {
    std::stable_sort(bucket.begin(), bucket.end(),
                     [](const AddedToken* a, const AddedToken* b) { return a->content.size() > b->content.size(); });
  }
}

const AddedToken* AddedTokenFinder::match(std::string_view text, size_t at) const {
  for (const AddedToken* token : by_first_byte_[static_cast<uint8_t>(text[at])]) {
    if (text.substr(at, token->content.size()) != token->content) continue;
    if (token->single_word && !stands_alone(text, at, at + token->content.size())) continue;
    return token;
  }
  return nullptr;
}

std::vector<TextPiece> AddedTokenFinder::split(std::string_view text) const {
  std::vector<TextPiece> pieces;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token = match(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t start = at;
    size_t end = at + token->content.size();
    while (token->strip_left && start > done) {
      const size_t before = start_of_character_before(text, start);
      if (before < done || whitespace_length(text, before) == 0) break;
      start = before;
    }
    while (token->strip_right && end < text.size() && whitespace_length(text, end) > 0) end += whitespace_length(text, end);
    if (start > done) pieces.push_back({text.substr(done, start - done)});
    pieces.push_back({text.substr(start, end - start), token});
    at = done = end;
  }
  if (done < text.size()) pieces.push_back({text.substr(done)});
  return pieces;
}

}  // namespace sluice
