#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::store {

/// SHA-1 (FIPS 180-4) of bytes that come in pieces: what Git names objects by and ends its files with.
class Sha1 {
 public:
  void add(std::string_view bytes);
  /// The 20 bytes of the hash; nothing may be added afterwards.
  std::string finish();

 private:
  static constexpr size_t kBlock = 64;
  void add_block(const unsigned char* block);

  std::array<uint32_t, 5> state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  std::array<unsigned char, kBlock> waiting_{};
  uint64_t size_ = 0;  // of all that was added
};

/// Bytes in hexadecimal digits, as Git shows hashes.
std::string hex_of(std::string_view bytes);

}  // namespace sluice::store
