#include "host/text/jinja/quoted_text.h"

#include <algorithm>

#include "host/text/jinja/run.h"
#include "scripting/base/unicode.h"

namespace sluice::jinja {
namespace {

constexpr std::string_view kEscapes = "ntr\\'\"abfv\n";
constexpr std::string_view kMeanings = {"\n\t\r\\'\"\a\b\f\v", 10};

int digit_of(char character) {
  if (character >= '0' && character <= '9') return character - '0';
  const char lower = static_cast<char>(character | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 16;
}

/// Reads up to `most` digits of `base`.
char32_t read_number(std::string_view& rest, size_t most, int base, size_t least, int line) {
  char32_t number = 0;
  size_t read = 0;
  for (; read < most && read < rest.size() && digit_of(rest[read]) < base; ++read) {
    number = number * static_cast<char32_t>(base) + static_cast<char32_t>(digit_of(rest[read]));
  }
  const bool is_character = number <= 0x10ffff && (number < 0xd800 || number > 0xdfff);
  if (read < least || !is_character) throw Fault(line, "an escape in a text is no character");
  rest.remove_prefix(read);
  return number;
}

}  // namespace

std::string without_escapes(std::string_view quoted, int line) {
  std::string text;
  while (!quoted.empty()) {
    const size_t plain = std::min(quoted.find('\\'), quoted.size());
    text += quoted.substr(0, plain);
    quoted.remove_prefix(plain);
    if (quoted.empty()) break;
    const char escape = quoted.size() > 1 ? quoted[1] : '\0';
    const size_t known = kEscapes.find(escape);
    if (known < kMeanings.size()) {
      text += kMeanings[known];
      quoted.remove_prefix(2);
    } else if (escape == '\n') {  // the text goes on in the next line
      quoted.remove_prefix(2);
    } else if (escape == 'x' || escape == 'u' || escape == 'U') {
      const size_t digits = escape == 'x' ? 2 : escape == 'u' ? 4 : 8;
      quoted.remove_prefix(2);
      append_utf8(text, read_number(quoted, digits, 16, digits, line));
    } else if (escape >= '0' && escape <= '7') {
      quoted.remove_prefix(1);
      append_utf8(text, read_number(quoted, 3, 8, 1, line));
    } else {  // what Python does not know stays
      text += '\\';
      quoted.remove_prefix(1);
    }
  }
  return text;
}

}  // namespace sluice::jinja
