#include "scripting/base/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <memory>
#include <new>

#include "scripting/base/error.h"

namespace sluice {
namespace {

utf8proc_ssize_t decode(std::string_view text, size_t at, utf8proc_int32_t& code_point) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at);
  return utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(std::min<size_t>(text.size() - at, 4)), &code_point);
}

bool continues(std::string_view text, size_t at) { return at < text.size() && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80; }

/// Length of the longest start of a valid character at `at`, at least 1.
size_t invalid_length(std::string_view text, size_t at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  const int wanted = lead >= 0xf0 && lead <= 0xf4 ? 4 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xc2 && lead < 0xe0 ? 2 : 1;
  size_t length = 1;
  if (wanted < 3 || !continues(text, at + 1)) return length;
  // The second byte decides whether a longer character can follow at all: no surrogates, nothing overlong or past U+10FFFF.
  const auto second = static_cast<uint8_t>(text[at + 1]);
  const bool possible = !(lead == 0xe0 && second < 0xa0) && !(lead == 0xed && second > 0x9f) &&
                        !(lead == 0xf0 && second < 0x90) && !(lead == 0xf4 && second > 0x8f);
  if (!possible) return length;
  ++length;
  if (wanted == 4 && continues(text, at + 2)) ++length;
  return length;
}

}  // namespace

int utf8_length(std::string_view text, size_t at) {
  utf8proc_int32_t code_point = 0;
  const utf8proc_ssize_t length = decode(text, at, code_point);
  return length > 0 ? static_cast<int>(length) : 0;
}

void append_utf8(std::string& text, char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

std::string valid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (const int length = utf8_length(text, at); length > 0) {
      result.append(text, at, length);
      at += length;
    } else {
      result += "\xef\xbf\xbd";
      at += invalid_length(text, at);
    }
  }
  return result;
}

std::string compose(std::string_view text) {
  utf8proc_uint8_t* composed = nullptr;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const utf8proc_ssize_t length = utf8proc_map(bytes, static_cast<utf8proc_ssize_t>(text.size()), &composed,
                                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, &std::free);
  if (length == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (length < 0) throw InternalError(std::string("NFC of invalid text: ") + utf8proc_errmsg(length));
  return {reinterpret_cast<const char*>(composed), static_cast<size_t>(length)};
}

int whitespace_length(std::string_view text, size_t at) {
  utf8proc_int32_t code_point = 0;
  const utf8proc_ssize_t length = decode(text, at, code_point);
  if (length <= 0) return 0;
  if ((code_point >= 9 && code_point <= 13) || code_point == 0x85) return static_cast<int>(length);
  const utf8proc_category_t category = utf8proc_category(code_point);
  const bool separates = category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
  return separates ? static_cast<int>(length) : 0;
}

char32_t upper_case(char32_t code_point) { return static_cast<char32_t>(utf8proc_toupper(static_cast<int32_t>(code_point))); }

char32_t lower_case(char32_t code_point) { return static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(code_point))); }

char32_t title_case(char32_t code_point) { return static_cast<char32_t>(utf8proc_totitle(static_cast<int32_t>(code_point))); }

bool has_case(char32_t code_point) {
  const utf8proc_category_t category = utf8proc_category(static_cast<int32_t>(code_point));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

bool is_letter(char32_t code_point) {
  const utf8proc_category_t category = utf8proc_category(static_cast<int32_t>(code_point));
  return has_case(code_point) || category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_LO;
}

bool is_printable(char32_t code_point) {
  if (code_point == ' ') return true;
  const utf8proc_category_t category = utf8proc_category(static_cast<int32_t>(code_point));
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

bool is_decimal(char32_t code_point) { return utf8proc_category(static_cast<int32_t>(code_point)) == UTF8PROC_CATEGORY_ND; }

}  // namespace sluice
