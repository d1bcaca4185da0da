#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/simd/bfloat16.h"
#include "scripting/graph/types.h"

namespace sluice::cpu::flows {

/// The 8-bit formats of the OCP 8-bit floating point specification, 1.0: sign, exponent, mantissa.
struct ByteFormat {
  int mantissa_bits;
  int bias;
  uint8_t largest;  // code of the largest finite number
  uint8_t nan;
};

constexpr ByteFormat byte_format(DataType type) {
  return type == DataType::kE4M3 ? ByteFormat{3, 7, 0x7e, 0x7f} : ByteFormat{2, 15, 0x7b, 0x7f};
}

inline float float_from_byte(DataType type, uint8_t code) {
  const ByteFormat format = byte_format(type);
  const int magnitude = code & 0x7f;
  float value = 0;
  if (magnitude <= format.largest) {
    const int exponent = magnitude >> format.mantissa_bits;
    const int mantissa = magnitude & ((1 << format.mantissa_bits) - 1);
    const int whole = exponent == 0 ? mantissa : mantissa | 1 << format.mantissa_bits;
    value = std::ldexp(static_cast<float>(whole), (exponent == 0 ? 1 : exponent) - format.bias - format.mantissa_bits);
  } else {
    const bool infinite = type == DataType::kE5M2 && magnitude == 0x7c;
    value = infinite ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  }
  return (code & 0x80) != 0 ? -value : value;
}

/// Nearest number, ties to even; beyond the largest (infinity too): the largest; NaN stays NaN.
inline uint8_t byte_from_float(DataType type, float value) {
  const ByteFormat format = byte_format(type);
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  if (std::isnan(value)) return static_cast<uint8_t>(sign | format.nan);
  const uint32_t bits = std::bit_cast<uint32_t>(value) & 0x7fffffffU;
  const int dropped = 23 - format.mantissa_bits;  // bits of float32's mantissa
  const int least = 128 - format.bias;            // float32's exponent of the least normal number
  uint32_t code = 0;
  if (bits >> 23 >= static_cast<uint32_t>(least)) {
    // A carry out of the mantissa raises the exponent by itself.
    const uint32_t rounded = bits + ((1U << (dropped - 1)) - 1) + (bits >> dropped & 1U);
    code = (rounded >> dropped) - (static_cast<uint32_t>(least - 1) << format.mantissa_bits);
  } else {
    // In units of the last place, which are those of a float32 between 2^22 and 2^23 once this is added.
    const float unit = std::bit_cast<float>(static_cast<uint32_t>(least + dropped) << 23);
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + unit) - std::bit_cast<uint32_t>(unit);
  }
  return static_cast<uint8_t>(sign | std::min<uint32_t>(code, format.largest));
}

}  // namespace sluice::cpu::flows
