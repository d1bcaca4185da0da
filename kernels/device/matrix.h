#pragma once

#include <cstddef>
#include <cstdint>

#include "scripting/graph/types.h"

namespace sluice {

/// A dense row-major matrix in a device's memory. Activations have the device's own type (float32 on the CPU,
/// bf16 on CUDA).
struct Matrix {
  void* data = nullptr;
  DataType type = DataType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;  // elements from row to row

  float* f32() const { return static_cast<float*>(data); }
  float* row(int64_t index) const { return f32() + index * stride; }
  /// Rows [first, first + count).
  Matrix slice_rows(int64_t first, int64_t count) const;
  /// Columns [first, first + count).
  Matrix slice_columns(int64_t first, int64_t count) const;
};

/// Memory of a device; freed with this object.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void* data() const = 0;
  virtual size_t bytes() const = 0;
};

/// A weight as the device wants it (packed, converted). Made by `Device::create_weight`.
class Weight {
 public:
  virtual ~Weight() = default;
  virtual int64_t rows() const = 0;     // outputs (or vocabulary)
  virtual int64_t columns() const = 0;  // inputs
  virtual size_t bytes() const = 0;
};

}  // namespace sluice
