#include "scripting/base/printable_text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

namespace sluice {
namespace {

/// Characters without a look of their own that are none of format: fillers, joiners of graphemes, selectors of variations, and
/// what Unicode keeps for more of their kind (Default_Ignorable_Code_Point).
constexpr std::array<std::pair<utf8proc_int32_t, utf8proc_int32_t>, 11> kIgnored = {{
    {0x034f, 0x034f},    // combining grapheme joiner
    {0x115f, 0x1160},    // Hangul fillers
    {0x17b4, 0x17b5},    // inherent vowels of Khmer
    {0x180b, 0x180f},    // Mongolian selectors and vowel separator
    {0x2065, 0x2065},    // among the controls of direction, not yet given
    {0x2800, 0x2800},    // a Braille pattern without dots
    {0x3164, 0x3164},    // Hangul filler
    {0xfe00, 0xfe0f},    // variation selectors
    {0xffa0, 0xffa0},    // halfwidth Hangul filler
    {0xfff0, 0xfff8},    // not yet given
    {0xe0000, 0xe0fff},  // tags, more variation selectors
}};

bool is_unseen(utf8proc_int32_t character) {
  switch (utf8proc_category(character)) {
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return true;
    default:
      return std::any_of(kIgnored.begin(), kIgnored.end(),
                         [&](const auto& range) { return character >= range.first && character <= range.second; });
  }
}

bool is_control(utf8proc_int32_t character) {
  return utf8proc_category(character) == UTF8PROC_CATEGORY_CC && character != '\n' && character != '\t';
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    utf8proc_int32_t character = -1;
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
    const utf8proc_ssize_t length = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size()), &character);
    const size_t size = length > 0 ? static_cast<size_t>(length) : 1;
    if (length <= 0) {
      result += fmt::format("\\x{:02x}", bytes[0]);
    } else if (is_control(character)) {
      result += fmt::format("\\x{:02x}", character);
    } else if (is_unseen(character)) {
      result += fmt::format("\\u{{{:x}}}", character);
    } else {
      result += text.substr(0, size);
    }
    text.remove_prefix(size);
  }
  return result;
}

std::string without_nul(std::string text) {
  for (size_t at = text.find('\0'); at != std::string::npos; at = text.find('\0', at)) text.replace(at, 1, "\\0");
  return text;
}

}  // namespace sluice
