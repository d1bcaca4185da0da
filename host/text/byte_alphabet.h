#pragma once

#include <string>
#include <string_view>

namespace sluice {

/// The alphabet of byte-level BPE (GPT-2): every byte is one printable character, so that vocabularies are plain text.
/// Writes each byte of `text` as its character.
std::string to_byte_characters(std::string_view text);
/// The inverse. Text that is not wholly of the alphabet stays as it is.
std::string from_byte_characters(std::string_view text);

}  // namespace sluice
