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
/// A character in another case; itself where it has none, or where that would be several characters.
char32_t upper_case(char32_t code_point);
char32_t lower_case(char32_t code_point);
char32_t title_case(char32_t code_point);
/// Letters that are upper, lower or title case.
bool has_case(char32_t code_point);
bool is_letter(char32_t code_point);
/// Python's str.isprintable: a space, or what is neither a separator nor a control, format or unassigned character.
bool is_printable(char32_t code_point);
/// A digit of the decimal system, in whatever script.
bool is_decimal(char32_t code_point);

}  // namespace sluice
