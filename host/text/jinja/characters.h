#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::jinja {

/// Texts of UTF-8 by characters (code points), as Python counts them.

/// Bytes of the character at `text[at]`, at least 1.
size_t character_length(std::string_view text, size_t at);
char32_t character_at(std::string_view text, size_t at);
size_t count_characters(std::string_view text);
/// The byte at which character `index` begins; the end of the text if there are fewer.
size_t byte_of_character(std::string_view text, size_t index);
/// Python's str.isspace of the character at `text[at]`: its bytes, or 0.
size_t space_length(std::string_view text, size_t at);
/// `text` without the characters of `unwanted` at its ends, or without white space if none are named.
std::string_view strip(std::string_view text, bool left, bool right, std::optional<std::string_view> unwanted = {});
/// Where `wanted` begins in `text`, from byte `from` on; npos if nowhere. Takes time proportional to the text.
size_t find(std::string_view text, std::string_view wanted, size_t from = 0);

enum class Case : unsigned char { kUpper, kLower, kTitle };
/// Appends one character in another case. Characters that become several in another case keep theirs, but for the German sharp s.
void append_cased(std::string& result, std::string_view character, Case wanted);
std::string cased(std::string_view text, Case wanted);
/// The first character in title case, the others in lower case.
std::string capitalized(std::string_view text);
/// Python's str.title: words are runs of letters.
std::string titled(std::string_view text);

}  // namespace sluice::jinja
