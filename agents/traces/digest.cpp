#include "agents/traces/digest.h"

#include <fmt/format.h>
#include <sodium.h>

#include <array>

namespace sluice {

std::string hex_digest(std::span<const std::byte> bytes) {
  std::array<unsigned char, 16> hash{};
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), nullptr, 0);
  std::string text;
  for (const unsigned char byte : hash) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace sluice
