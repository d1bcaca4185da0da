#include "store/folder/text_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "store/error.h"

namespace sluice::store {

namespace {

constexpr int kDeepest = 16;

[[noreturn]] void refuse(const std::string& what, const std::string& why, const std::string& hint = {}) {
  throw StoreError(ErrorKind::kInvalid, fmt::format("the {} {}", what, why), hint);
}

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

/// Whether UTF-8 text holds controls of C1, of the direction of writing, blanks of other widths, or what has no look at all:
/// names made of them deceive.
bool holds_unseen(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 18> kUnseen = {{
      {"\xc2\x80", "\xc2\xa0"},                  // U+0080 to U+00A0
      {"\xc2\xad", "\xc2\xad"},                  // U+00AD
      {"\xcd\x8f", "\xcd\x8f"},                  // U+034F
      {"\xd8\x9c", "\xd8\x9c"},                  // U+061C
      {"\xe1\x85\x9f", "\xe1\x85\xa0"},          // U+115F and U+1160
      {"\xe1\x9e\xb4", "\xe1\x9e\xb5"},          // U+17B4 and U+17B5
      {"\xe1\x9a\x80", "\xe1\x9a\x80"},          // U+1680
      {"\xe1\xa0\x8e", "\xe1\xa0\x8e"},          // U+180E
      {"\xe2\xa0\x80", "\xe2\xa0\x80"},          // U+2800
      {"\xe3\x80\x80", "\xe3\x80\x80"},          // U+3000
      {"\xe3\x85\xa4", "\xe3\x85\xa4"},          // U+3164
      {"\xef\xbe\xa0", "\xef\xbe\xa0"},          // U+FFA0
      {"\xe2\x80\x80", "\xe2\x80\x8b"},          // U+2000 to U+200B; those that join, behind it, belong to scripts and emoji
      {"\xe2\x80\x8e", "\xe2\x80\x8f"},          // U+200E and U+200F
      {"\xe2\x80\xa8", "\xe2\x80\xaf"},          // U+2028 to U+202F
      {"\xe2\x81\x9f", "\xe2\x81\xaf"},          // U+205F to U+206F
      {"\xef\xbb\xbf", "\xef\xbb\xbf"},          // U+FEFF
      {"\xf3\xa0\x80\x80", "\xf3\xa0\x81\xbf"},  // U+E0000 to U+E007F
  }};
  for (const auto& [first, last] : kUnseen) {
    for (size_t at = text.find(first[0]); at != std::string_view::npos; at = text.find(first[0], at + 1)) {
      const std::string_view character = text.substr(at, first.size());
      if (character >= first && character <= last) return true;
    }
  }
  return false;
}

}  // namespace

void check_size(const std::string& what, const std::string& text, size_t most) {
  if (text.size() > most) refuse(what, fmt::format("has {} bytes", text.size()), fmt::format("at most {} are kept", most));
}

void check_text(const std::string& what, const std::string& text, size_t most) {
  check_size(what, text, most);
  if (text.find('\0') != std::string::npos) refuse(what, "holds a NUL character");
  if (!is_utf8(text)) refuse(what, "is no UTF-8 text");
}

void check_one_line(const std::string& what, const std::string& text) {
  if (text.empty()) refuse(what, "is empty");
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control)) refuse(what, "holds a line break or another control character");
  if (holds_unseen(text)) refuse(what, "holds a character that nobody sees, or that turns the direction of writing");
  if (text.front() == ' ' || text.back() == ' ') refuse(what, "begins or ends with a blank");
}

std::string canonical_object(const std::string& what, const std::string& json) {
  try {
    const auto shallow = [&](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
      if (depth > kDeepest) refuse(what, "are nested too deeply", fmt::format("at most {} levels", kDeepest));
      return true;
    };
    const nlohmann::json parsed = nlohmann::json::parse(json, shallow);
    if (!parsed.is_object()) refuse(what, fmt::format("are a JSON {}", parsed.type_name()), "a JSON object is wanted");
    return parsed.dump();
  } catch (const nlohmann::json::exception& error) {
    refuse(what, fmt::format("are no JSON: {}", error.what()));
  }
}

}  // namespace sluice::store
