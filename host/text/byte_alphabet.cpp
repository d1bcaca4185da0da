#include "host/text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "scripting/base/unicode.h"

namespace sluice {
namespace {

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, 512> bytes{};  // by code point; -1 where none

  Alphabet() {
    bytes.fill(-1);
    char32_t next = 256;  // bytes that do not print take the code points from here on
    for (int byte = 0; byte < 256; ++byte) {
      const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      const char32_t code_point = prints ? static_cast<char32_t>(byte) : next++;
      append_utf8(characters[byte], code_point);
      bytes[code_point] = byte;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string to_byte_characters(std::string_view text) {
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  for (const char byte : text) result += alphabet().characters[static_cast<uint8_t>(byte)];
  return result;
}

std::string from_byte_characters(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const int length = utf8_length(text, at);
    // Code points of the alphabet lie below 512: one or two bytes.
    if (length < 1 || length > 2) return std::string(text);
    const auto lead = static_cast<uint8_t>(text[at]);
    const unsigned code_point = length == 1 ? lead : ((lead & 0x1fU) << 6 | (static_cast<uint8_t>(text[at + 1]) & 0x3fU));
    if (code_point >= alphabet().bytes.size() || alphabet().bytes[code_point] < 0) return std::string(text);
    result += static_cast<char>(alphabet().bytes[code_point]);
    at += length;
  }
  return result;
}

}  // namespace sluice
