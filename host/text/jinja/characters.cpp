#include "host/text/jinja/characters.h"

#include <algorithm>
#include <cstring>

#include "scripting/base/unicode.h"

namespace sluice::jinja {
namespace {

bool holds(std::string_view characters, std::string_view character) { return find(characters, character) != std::string::npos; }

size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

}  // namespace

size_t character_length(std::string_view text, size_t at) {
  if (static_cast<unsigned char>(text[at]) < 0x80) return 1;
  return std::max<size_t>(1, static_cast<size_t>(utf8_length(text, at)));
}

char32_t character_at(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return lead;
  const size_t length = character_length(text, at);
  char32_t code_point = lead & (0xffU >> (length + 1));
  for (size_t i = 1; i < length; ++i) code_point = code_point << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3fU);
  return code_point;
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }));
}

size_t byte_of_character(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += character_length(text, at);
  return std::min(at, text.size());
}

size_t space_length(std::string_view text, size_t at) {
  if (text[at] >= 0x1c && text[at] <= 0x1f) return 1;  // separators of files, groups, records, units
  return static_cast<size_t>(whitespace_length(text, at));
}

std::string_view strip(std::string_view text, bool left, bool right, std::optional<std::string_view> unwanted) {
  const auto goes = [&](size_t at, size_t length) {
    return unwanted ? holds(*unwanted, text.substr(at, length)) : space_length(text, at) > 0;
  };
  while (left && !text.empty()) {
    const size_t length = character_length(text, 0);
    if (!goes(0, length)) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    const size_t at = last_character(text);
    if (!goes(at, text.size() - at)) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

size_t find(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size() || wanted.size() > text.size() - from) return std::string::npos;
  if (wanted.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found == nullptr ? std::string::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

void append_cased(std::string& result, std::string_view character, Case wanted) {
  const char32_t code_point = character_at(character, 0);
  if (code_point == U'ß' && wanted != Case::kLower) {
    result += wanted == Case::kUpper ? "SS" : "Ss";
    return;
  }
  switch (wanted) {
    case Case::kUpper:
      return append_utf8(result, upper_case(code_point));
    case Case::kLower:
      return append_utf8(result, lower_case(code_point));
    case Case::kTitle:
      return append_utf8(result, title_case(code_point));
  }
}

std::string cased(std::string_view text, Case wanted) {
  std::string result;
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    length = character_length(text, at);
    append_cased(result, text.substr(at, length), wanted);
  }
  return result;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  const size_t first = character_length(text, 0);
  std::string result;
  append_cased(result, text.substr(0, first), Case::kTitle);
  return result + cased(text.substr(first), Case::kLower);
}

std::string titled(std::string_view text) {
  std::string result;
  bool in_word = false;
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    length = character_length(text, at);
    append_cased(result, text.substr(at, length), in_word ? Case::kLower : Case::kTitle);
    in_word = has_case(character_at(text, at));
  }
  return result;
}

}  // namespace sluice::jinja
