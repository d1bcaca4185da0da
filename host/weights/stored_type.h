#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

/// Types of tensors in files: elements of safetensors, then GGML's blocks of quantised weights.
enum class StoredType : uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kF16,
  kBF16,
  kU32,
  kI32,
  kF32,
  kU64,
  kI64,
  kF64,
  kF8E4M3,
  kF8E5M2,
  kQ40,
  kQ41,
  kQ50,
  kQ51,
  kQ80,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kIq4Xs,
  kMxfp4
};

/// A type lies in a file as blocks of several elements; of a type that is not quantised an element is a block.
struct StoredFormat {
  StoredType type;
  std::string_view name;  // "F32", "BF16", "Q4_0", ... as the file formats spell it
  size_t block_elements;
  size_t block_bytes;
};

const StoredFormat& format_of(StoredType type);
/// Null for a name that is not known.
const StoredFormat* find_format(std::string_view name);

}  // namespace sluice
