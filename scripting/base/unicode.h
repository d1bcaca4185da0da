#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

/// Bytes of the UTF-8 character that starts at `text[at]`; 0 if no valid character starts there.
int utf8_length(std::string_view text, size_t at);
/// Appends `code_point` as UTF-8.
void append_utf8(std::string& text, char32_t code_point);
/// `text` with every maximal invalid part replaced by U+FFFD, as Unicode recommends (section 3.9).
std::string valid_utf8(std::string_view text);
/// Canonical composition (NFC) of valid UTF-8.
std::string compose(std::string_view text);
/// Bytes of the white-space character (Unicode White_Space) at `text[at]`; 0 if there is none.
int whitespace_length(std::string_view text, size_t at);

}  // namespace sluice
