#include "agents/printable_text.h"

#include <fmt/format.h>

namespace sluice {

std::string printable(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto before = i > 0 ? static_cast<unsigned char>(text[i - 1]) : 0;
    const bool ascii = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    const bool latin = before == 0xc2 && byte >= 0x80 && byte < 0xa0;  // U+0080 to U+009F, in UTF-8
    if (latin) result.pop_back();
    if (ascii || latin) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace sluice
