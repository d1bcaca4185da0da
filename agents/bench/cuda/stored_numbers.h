#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/flow/storage.h"
#include "scripting/graph/types.h"

/// Numbers as pools store them (bf16, e4m3 or e5m2), for cases that draw them and judge what kernels make of them.
namespace sluice {

/// Bytes of 0xff are NaN in each of these types.
inline constexpr auto kNaNByte = std::byte{0xff};

inline float widen_bf16(uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); }

/// Number `index` of those at `data`.
inline float stored_number(DataType type, const std::byte* data, size_t index) {
  if (type != DataType::kBF16) return cpu::flows::float_from_byte(type, std::to_integer<uint8_t>(data[index]));
  uint16_t bits = 0;
  std::memcpy(&bits, data + index * sizeof(bits), sizeof(bits));
  return widen_bf16(bits);
}

/// Numbers near a normal distribution (sums of four uniform ones), cut to bf16 or rounded to 8 bits; after 2^24 they repeat.
inline std::vector<std::byte> draw_stored(DataType type, size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  const size_t element = size_of(type);
  std::vector<std::byte> bytes(count * element);
  const size_t drawn = std::min(count, size_t{1} << 24);
  for (size_t i = 0; i < drawn; ++i) {
    const uint64_t bits = random();
    float sum = -131070.0F;
    for (int part = 0; part < 4; ++part) sum += static_cast<float>(bits >> (16 * part) & 0xffffU);
    const float normal = sum / 37837.0F;
    if (type == DataType::kBF16) {
      const auto cut = static_cast<uint16_t>(std::bit_cast<uint32_t>(normal) >> 16);
      std::memcpy(bytes.data() + i * element, &cut, sizeof(cut));
    } else {
      bytes[i] = std::byte{cpu::flows::byte_from_float(type, normal)};
    }
  }
  for (size_t i = drawn * element; i < bytes.size(); ++i) bytes[i] = bytes[i - drawn * element];
  return bytes;
}

/// Multiplies bf16 numbers by a power of two, which is exact unless they leave the range of the type.
inline void scale_bf16(std::vector<std::byte>& numbers, float power_of_two) {
  for (size_t at = 0; at < numbers.size(); at += sizeof(uint16_t)) {
    uint16_t bits = 0;
    std::memcpy(&bits, numbers.data() + at, sizeof(bits));
    bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(widen_bf16(bits) * power_of_two) >> 16);
    std::memcpy(numbers.data() + at, &bits, sizeof(bits));
  }
}

}  // namespace sluice
