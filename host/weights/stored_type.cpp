#include "host/weights/stored_type.h"

#include <algorithm>
#include <array>

namespace sluice {
namespace {

constexpr std::array kFormats = {
    StoredFormat{StoredType::kBool, "BOOL", 1, 1},
    StoredFormat{StoredType::kU8, "U8", 1, 1},
    StoredFormat{StoredType::kI8, "I8", 1, 1},
    StoredFormat{StoredType::kU16, "U16", 1, 2},
    StoredFormat{StoredType::kI16, "I16", 1, 2},
    StoredFormat{StoredType::kF16, "F16", 1, 2},
    StoredFormat{StoredType::kBF16, "BF16", 1, 2},
    StoredFormat{StoredType::kU32, "U32", 1, 4},
    StoredFormat{StoredType::kI32, "I32", 1, 4},
    StoredFormat{StoredType::kF32, "F32", 1, 4},
    StoredFormat{StoredType::kU64, "U64", 1, 8},
    StoredFormat{StoredType::kI64, "I64", 1, 8},
    StoredFormat{StoredType::kF64, "F64", 1, 8},
    StoredFormat{StoredType::kF8E4M3, "F8_E4M3", 1, 1},
    StoredFormat{StoredType::kF8E5M2, "F8_E5M2", 1, 1},
    StoredFormat{StoredType::kQ40, "Q4_0", 32, 18},
    StoredFormat{StoredType::kQ41, "Q4_1", 32, 20},
    StoredFormat{StoredType::kQ50, "Q5_0", 32, 22},
    StoredFormat{StoredType::kQ51, "Q5_1", 32, 24},
    StoredFormat{StoredType::kQ80, "Q8_0", 32, 34},
    StoredFormat{StoredType::kQ2K, "Q2_K", 256, 84},
    StoredFormat{StoredType::kQ3K, "Q3_K", 256, 110},
    StoredFormat{StoredType::kQ4K, "Q4_K", 256, 144},
    StoredFormat{StoredType::kQ5K, "Q5_K", 256, 176},
    StoredFormat{StoredType::kQ6K, "Q6_K", 256, 210},
    StoredFormat{StoredType::kIq4Nl, "IQ4_NL", 32, 18},
    StoredFormat{StoredType::kIq4Xs, "IQ4_XS", 256, 136},
    StoredFormat{StoredType::kMxfp4, "MXFP4", 32, 17},
};

}  // namespace

const StoredFormat& format_of(StoredType type) {
  return *std::find_if(kFormats.begin(), kFormats.end(), [&](const StoredFormat& format) { return format.type == type; });
}

const StoredFormat* find_format(std::string_view name) {
  const auto* const found =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const StoredFormat& format) { return format.name == name; });
  return found == kFormats.end() ? nullptr : found;
}

}  // namespace sluice
