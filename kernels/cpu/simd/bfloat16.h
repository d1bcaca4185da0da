#pragma once

#include <bit>
#include <cstdint>

namespace sluice::cpu {

/// The float32 whose upper half `bits` is.
inline float widen(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

/// Nearest bfloat16, ties to even; every NaN becomes a quiet NaN.
inline uint16_t round_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace sluice::cpu
