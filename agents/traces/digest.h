#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace sluice {

/// BLAKE2b of 16 bytes, as 32 hexadecimal digits.
std::string hex_digest(std::span<const std::byte> bytes);

}  // namespace sluice
