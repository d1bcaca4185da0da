#include "host/weights/decode_blocks.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "host/weights/half.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

using Bytes = const uint8_t*;

template <typename T>
T load(Bytes bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

float half(Bytes bytes) { return float_from_f16(load<uint16_t>(bytes)); }
int low(uint8_t byte) { return byte & 15; }
int high(uint8_t byte) { return byte >> 4; }

void decode_f32(Bytes block, float* values) { *values = load<float>(block); }
void decode_f64(Bytes block, float* values) { *values = static_cast<float>(load<double>(block)); }
void decode_f16(Bytes block, float* values) { *values = half(block); }
void decode_bf16(Bytes block, float* values) { *values = float_from_bf16(load<uint16_t>(block)); }

/// 16 bytes hold 32 elements: the first 16 in their low halves, the others in the high ones.
void decode_q4_0(Bytes block, float* values) {  // scale, nibbles
  const float scale = half(block);
  for (int i = 0; i < 16; ++i) {
    const uint8_t byte = block[2 + i];
    values[i] = scale * static_cast<float>(low(byte) - 8);
    values[16 + i] = scale * static_cast<float>(high(byte) - 8);
  }
}

void decode_q4_1(Bytes block, float* values) {  // scale, minimum, nibbles
  const float scale = half(block);
  const float minimum = half(block + 2);
  for (int i = 0; i < 16; ++i) {
    const uint8_t byte = block[4 + i];
    values[i] = scale * static_cast<float>(low(byte)) + minimum;
    values[16 + i] = scale * static_cast<float>(high(byte)) + minimum;
  }
}

/// Element `i` of 32, of four bits here and a fifth in `high_bits`.
int five_bits(Bytes nibbles, uint32_t high_bits, int i) {
  const int nibble = i < 16 ? low(nibbles[i]) : high(nibbles[i - 16]);
  return nibble | static_cast<int>(high_bits >> i & 1) << 4;
}

void decode_q5_0(Bytes block, float* values) {  // scale, fifth bits, nibbles
  const float scale = half(block);
  const auto high_bits = load<uint32_t>(block + 2);
  for (int i = 0; i < 32; ++i) values[i] = scale * static_cast<float>(five_bits(block + 6, high_bits, i) - 16);
}

void decode_q5_1(Bytes block, float* values) {  // scale, minimum, fifth bits, nibbles
  const float scale = half(block);
  const float minimum = half(block + 2);
  const auto high_bits = load<uint32_t>(block + 4);
  for (int i = 0; i < 32; ++i) values[i] = scale * static_cast<float>(five_bits(block + 8, high_bits, i)) + minimum;
}

void decode_q8_0(Bytes block, float* values) {  // scale, integers
  const float scale = half(block);
  for (int i = 0; i < 32; ++i) values[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

void decode_q2_k(Bytes block, float* values) {  // 16 of scale and minimum in a nibble each, 64 of four elements, scale, minimum
  const Bytes elements = block + 16;
  const float scale = half(block + 80);
  const float minimum = half(block + 82);
  for (int group = 0; group < 16; ++group) {
    const float group_scale = scale * static_cast<float>(low(block[group]));
    const float group_minimum = minimum * static_cast<float>(high(block[group]));
    const Bytes four = elements + 32 * (group / 8) + 16 * (group % 2);
    const int shift = group % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) {
      values[16 * group + i] = group_scale * static_cast<float>(four[i] >> shift & 3) - group_minimum;
    }
  }
}

void decode_q3_k(Bytes block, float* values) {  // 32 of high bits, 64 of four elements, 12 of 16 scales in six bits, scale
  const Bytes low_bits = block + 32;
  const Bytes scales = block + 96;
  const float scale = half(block + 108);
  for (int group = 0; group < 16; ++group) {
    const int nibble = group < 8 ? low(scales[group]) : high(scales[group - 8]);
    const int six = nibble | (scales[8 + group % 4] >> (group / 4 * 2) & 3) << 4;
    const float group_scale = scale * static_cast<float>(six - 32);
    const Bytes four = low_bits + 32 * (group / 8) + 16 * (group % 2);
    const Bytes high_bits = block + 16 * (group % 2);
    const int shift = group % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) {
      const int is_low = high_bits[i] >> (group / 2) & 1 ? 0 : 4;
      values[16 * group + i] = group_scale * static_cast<float>((four[i] >> shift & 3) - is_low);
    }
  }
}

struct ScaleAndMinimum {
  int scale;
  int minimum;
};

/// Of group `i` of eight: six bits each, of which the last four groups keep two with the first four.
ScaleAndMinimum scale_and_minimum(Bytes twelve, int i) {
  if (i < 4) return {twelve[i] & 63, twelve[4 + i] & 63};
  return {low(twelve[4 + i]) | twelve[i - 4] >> 6 << 4, high(twelve[4 + i]) | twelve[i] >> 6 << 4};
}

void decode_q4_k(Bytes block, float* values) {  // scale, minimum, 12 of those of groups, 128 of two elements
  const float scale = half(block);
  const float minimum = half(block + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleAndMinimum own = scale_and_minimum(block + 4, group);
    const float group_scale = scale * static_cast<float>(own.scale);
    const float group_minimum = minimum * static_cast<float>(own.minimum);
    const Bytes nibbles = block + 16 + 32 * (group / 2);
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      values[32 * group + i] = group_scale * static_cast<float>(nibbles[i] >> shift & 15) - group_minimum;
    }
  }
}

void decode_q5_k(Bytes block, float* values) {  // as Q4_K, with 32 of fifth bits before the elements
  const float scale = half(block);
  const float minimum = half(block + 2);
  const Bytes high_bits = block + 16;
  for (int group = 0; group < 8; ++group) {
    const ScaleAndMinimum own = scale_and_minimum(block + 4, group);
    const float group_scale = scale * static_cast<float>(own.scale);
    const float group_minimum = minimum * static_cast<float>(own.minimum);
    const Bytes nibbles = block + 48 + 32 * (group / 2);
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int five = (nibbles[i] >> shift & 15) | (high_bits[i] >> group & 1) << 4;
      values[32 * group + i] = group_scale * static_cast<float>(five) - group_minimum;
    }
  }
}

void decode_q6_k(Bytes block, float* values) {  // 128 of two low nibbles, 64 of four high pairs of bits, 16 scales, scale
  const Bytes high_bits = block + 128;
  const Bytes scales = block + 192;
  const float scale = half(block + 208);
  for (int group = 0; group < 16; ++group) {
    const float group_scale = scale * static_cast<float>(static_cast<int8_t>(scales[group]));
    const int part = group / 8;                                            // of 128 elements
    const int quarter = group % 8 / 2;                                     // of a part
    const int first = 16 * (group % 2);                                    // in a quarter
    const Bytes nibbles = block + 64 * part + 32 * (quarter % 2) + first;  // two quarters share a byte
    const Bytes pairs = high_bits + 32 * part + first;                     // four do
    for (int i = 0; i < 16; ++i) {
      const int six = (nibbles[i] >> (quarter / 2 * 4) & 15) | (pairs[i] >> (2 * quarter) & 3) << 4;
      values[16 * group + i] = group_scale * static_cast<float>(six - 32);
    }
  }
}

constexpr std::array<float, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void decode_named_nibbles(Bytes nibbles, float scale, const std::array<float, 16>& names, float* values) {
  for (int i = 0; i < 16; ++i) {
    values[i] = scale * names[low(nibbles[i])];
    values[16 + i] = scale * names[high(nibbles[i])];
  }
}

void decode_iq4_nl(Bytes block, float* values) { decode_named_nibbles(block + 2, half(block), kIq4Values, values); }

void decode_iq4_xs(Bytes block, float* values) {  // scale, eight pairs of high bits of scales, eight nibbles of them, elements
  const float scale = half(block);
  const auto high_bits = load<uint16_t>(block + 2);
  for (int group = 0; group < 8; ++group) {
    const int nibble = block[4 + group / 2] >> (group % 2 * 4) & 15;
    const int six = nibble | (high_bits >> (2 * group) & 3) << 4;
    decode_named_nibbles(block + 8 + 16 * group, scale * static_cast<float>(six - 32), kIq4Values, values + 32 * group);
  }
}

/// Twice the numbers of E2M1, without its -0.
constexpr std::array<float, 16> kE2M1Values = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// Half of the power of two that E8M0 means: 2^(exponent - 128).
float half_of_e8m0(uint8_t exponent) {
  return std::bit_cast<float>(exponent < 2 ? uint32_t{0x00200000} << exponent : uint32_t{exponent - 1U} << 23);
}

void decode_mxfp4(Bytes block, float* values) {  // exponent, nibbles
  decode_named_nibbles(block + 1, half_of_e8m0(block[0]), kE2M1Values, values);
}

using Decode = void (*)(Bytes blocks, size_t count, float* values);

template <StoredType kType, auto kDecodeBlock>
Decode every() {
  return [](Bytes blocks, size_t count, float* values) {
    const StoredFormat& format = format_of(kType);
    for (size_t i = 0; i < count; ++i) kDecodeBlock(blocks + i * format.block_bytes, values + i * format.block_elements);
  };
}

/// Null for a type that holds no real numbers.
Decode decode_of(StoredType type) {
  switch (type) {
    case StoredType::kF32:
      return every<StoredType::kF32, decode_f32>();
    case StoredType::kF64:
      return every<StoredType::kF64, decode_f64>();
    case StoredType::kF16:
      return every<StoredType::kF16, decode_f16>();
    case StoredType::kBF16:
      return every<StoredType::kBF16, decode_bf16>();
    case StoredType::kQ40:
      return every<StoredType::kQ40, decode_q4_0>();
    case StoredType::kQ41:
      return every<StoredType::kQ41, decode_q4_1>();
    case StoredType::kQ50:
      return every<StoredType::kQ50, decode_q5_0>();
    case StoredType::kQ51:
      return every<StoredType::kQ51, decode_q5_1>();
    case StoredType::kQ80:
      return every<StoredType::kQ80, decode_q8_0>();
    case StoredType::kQ2K:
      return every<StoredType::kQ2K, decode_q2_k>();
    case StoredType::kQ3K:
      return every<StoredType::kQ3K, decode_q3_k>();
    case StoredType::kQ4K:
      return every<StoredType::kQ4K, decode_q4_k>();
    case StoredType::kQ5K:
      return every<StoredType::kQ5K, decode_q5_k>();
    case StoredType::kQ6K:
      return every<StoredType::kQ6K, decode_q6_k>();
    case StoredType::kIq4Nl:
      return every<StoredType::kIq4Nl, decode_iq4_nl>();
    case StoredType::kIq4Xs:
      return every<StoredType::kIq4Xs, decode_iq4_xs>();
    case StoredType::kMxfp4:
      return every<StoredType::kMxfp4, decode_mxfp4>();
    default:
      return nullptr;
  }
}

}  // namespace

bool holds_real_numbers(StoredType type) { return decode_of(type) != nullptr; }

void decode_blocks(StoredType type, std::span<const std::byte> bytes, std::span<float> values) {
  const StoredFormat& format = format_of(type);
  const Decode decode = decode_of(type);
  const size_t blocks = bytes.size() / format.block_bytes;
  if (decode == nullptr || blocks * format.block_bytes != bytes.size() || blocks * format.block_elements != values.size()) {
    throw InternalError("blocks that cannot be decoded, or not into as many values");
  }
  decode(reinterpret_cast<Bytes>(bytes.data()), blocks, values.data());
}

}  // namespace sluice
