#pragma once

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
  const float magnitude = std::fabs(value);
  if (magnitude >= float_from_byte(type, format.largest)) return static_cast<uint8_t>(sign | format.largest);
  int exponent = 0;
  if (magnitude > 0) exponent = std::ilogb(magnitude);
  if (magnitude == 0 || exponent < 1 - format.bias) exponent = 1 - format.bias;
  // In units of the last place; a carry out of the mantissa raises the exponent by itself.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
  const int code = units + ((exponent + format.bias - 1) << format.mantissa_bits);
  return static_cast<uint8_t>(sign | (code > format.largest ? format.largest : code));
}

}  // namespace sluice::cpu::flows
