#include "store/lineage/sha1.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace sluice::store {

void Sha1::add_block(const unsigned char* block) {
  std::array<uint32_t, 80> words{};
  for (size_t i = 0; i < 16; ++i) {
    const unsigned char* at = block + 4 * i;
    words[i] = uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
  }
  for (size_t i = 16; i < 80; ++i) words[i] = std::rotl(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
  auto [a, b, c, d, e] = state_;
  for (size_t i = 0; i < 80; ++i) {
    const auto [mixed, constant] = i < 20   ? std::pair((b & c) | (~b & d), 0x5a827999U)
                                   : i < 40 ? std::pair(b ^ c ^ d, 0x6ed9eba1U)
                                   : i < 60 ? std::pair((b & c) | (b & d) | (c & d), 0x8f1bbcdcU)
                                            : std::pair(b ^ c ^ d, 0xca62c1d6U);
    const uint32_t next = std::rotl(a, 5) + mixed + e + constant + words[i];
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  }
  const std::array<uint32_t, 5> rounds{a, b, c, d, e};
  for (size_t i = 0; i < rounds.size(); ++i) state_[i] += rounds[i];
}

void Sha1::add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t filled = size_ % kBlock;
    const size_t taken = std::min(bytes.size(), kBlock - filled);
    std::copy_n(bytes.begin(), taken, waiting_.begin() + static_cast<std::ptrdiff_t>(filled));
    bytes.remove_prefix(taken);
    size_ += taken;
    if (filled + taken == kBlock) add_block(waiting_.data());
  }
}

std::string Sha1::finish() {
  const uint64_t bits = 8 * size_;
  add(std::string_view("\x80", 1));
  while (size_ % kBlock != kBlock - 8) add(std::string_view("\0", 1));
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(bits >> (56 - 8 * i));
  add(length);
  std::string hash;
  for (const uint32_t word : state_) {
    for (const int shift : {24, 16, 8, 0}) hash += static_cast<char>(word >> shift);
  }
  return hash;
}

std::string hex_of(std::string_view bytes) {
  std::string hex;
  for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

}  // namespace sluice::store
