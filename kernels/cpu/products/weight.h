#pragma once

#include "kernels/cpu/runtime/memory.h"
#include "kernels/device.h"

namespace sluice::cpu {

/// A weight packed into panels of 32 outputs, so that the outputs lie in the lanes of a vector and a product needs no sums
/// across lanes. bf16: [panel][input pair][32 outputs][2 inputs]; f32: [panel][input][32 outputs]. Padded with zeros.
class CpuWeight final : public Weight {
 public:
  static constexpr int64_t kPanel = 32;
  static constexpr int64_t kInputBlock = 32;  // inputs are padded to a multiple of this

  CpuWeight(const void* values, DataType type, int64_t rows, int64_t columns);

  int64_t rows() const override { return rows_; }
  int64_t columns() const override { return columns_; }
  size_t bytes() const override { return memory_.bytes(); }
  DataType type() const { return type_; }
  int64_t panels() const { return (rows_ + kPanel - 1) / kPanel; }
  int64_t padded_columns() const { return padded_columns_; }
  const std::byte* panel(int64_t index) const { return memory_.at(index * kPanel * padded_columns_ * size_of(type_)); }
  /// Output row `index` as float32, into `out` [columns].
  void unpack_row(int64_t index, float* out) const;
  /// A weight of one row (the gain of a norm) as plain float32 [columns]. Throws InternalError for others.
  const float* vector() const;

 private:
  int64_t rows_;
  int64_t columns_;
  int64_t padded_columns_;
  DataType type_;
  MappedMemory memory_;
  std::vector<float> vector_;
};

/// The weight as this device made it. Throws InternalError for another device's.
const CpuWeight& as_cpu(const Weight& weight);

}  // namespace sluice::cpu
