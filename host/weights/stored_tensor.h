#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "host/weights/stored_type.h"

namespace sluice {

/// A tensor in a file; `bytes` lies in the file's mapping and may be unaligned.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;  // slowest axis first
  std::span<const std::byte> bytes;
  /// Not 0: a matrix whose rows belong to so many heads, and which has the rows that rotary embeddings turn together side by
  /// side, as llama.cpp keeps them. Elements are given as Hugging Face has them: a head's first halves of pairs, then the second.
  int paired_heads = 0;

  int64_t elements() const;
  /// Elements of the fastest axis, and how many such rows there are.
  int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const { return columns() == 0 ? 0 : elements() / columns(); }
  /// "[2, 3]".
  std::string shape_text() const;
  /// `count` rows from `first` on as float32: [count, columns]. Throws InputError for a type that holds no real numbers.
  void read_rows(int64_t first, int64_t count, float* values) const;
  /// All elements as float32. Throws InputError as above.
  std::vector<float> to_f32() const;
};

}  // namespace sluice
