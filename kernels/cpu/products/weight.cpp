#include "kernels/cpu/products/weight.h"

#include <fmt/format.h>

#include "kernels/cpu/simd/bfloat16.h"

namespace sluice::cpu {
namespace {

template <typename T>
void pack(const T* source, int64_t rows, int64_t columns, int64_t padded_columns, T* target) {
  constexpr int64_t kPanel = CpuWeight::kPanel;
  constexpr int64_t kTogether = sizeof(T) == 2 ? 2 : 1;  // inputs of one output that lie side by side
  for (int64_t row = 0; row < rows; ++row) {
    T* panel = target + row / kPanel * kPanel * padded_columns + row % kPanel * kTogether;
    for (int64_t column = 0; column < columns; ++column) {
      panel[column / kTogether * kTogether * kPanel + column % kTogether] = source[row * columns + column];
    }
  }
}

}  // namespace

CpuWeight::CpuWeight(const void* values, DataType type, int64_t rows, int64_t columns)
    : rows_(rows), columns_(columns), padded_columns_((columns + kInputBlock - 1) / kInputBlock * kInputBlock), type_(type) {
  if (rows < 1 || columns < 1) throw InputError(fmt::format("a weight of {} x {} cannot be made", rows, columns));
  if (type != DataType::kF32 && type != DataType::kBF16) {
    throw InputError(fmt::format("the CPU keeps weights as bf16 or f32, not as {}", name_of(type)),
                     "convert the checkpoint to bf16");
  }
  memory_ = MappedMemory(static_cast<size_t>(panels()) * kPanel * padded_columns_ * size_of(type));
  if (type == DataType::kF32) {
    pack(static_cast<const float*>(values), rows, columns, padded_columns_, memory_.as<float>());
  } else {
    pack(static_cast<const uint16_t*>(values), rows, columns, padded_columns_, memory_.as<uint16_t>());
  }
  if (rows == 1) {
    vector_.resize(columns);
    unpack_row(0, vector_.data());
  }
}

void CpuWeight::unpack_row(int64_t index, float* out) const {
  const std::byte* data = panel(index / kPanel);
  const int64_t lane = index % kPanel;
  if (type_ == DataType::kF32) {
    const float* from = reinterpret_cast<const float*>(data) + lane;
    for (int64_t i = 0; i < columns_; ++i) out[i] = from[i * kPanel];
  } else {
    const uint16_t* from = reinterpret_cast<const uint16_t*>(data) + 2 * lane;
    for (int64_t i = 0; i < columns_; ++i) out[i] = widen(from[i / 2 * 2 * kPanel + i % 2]);
  }
}

const float* CpuWeight::vector() const {
  if (vector_.empty()) throw InternalError(fmt::format("a gain must have 1 row, not {}", rows_));
  return vector_.data();
}

const CpuWeight& as_cpu(const Weight& weight) {
  const auto* mine = dynamic_cast<const CpuWeight*>(&weight);
  if (mine == nullptr) throw InternalError("a weight of another device was given to the CPU");
  return *mine;
}

}  // namespace sluice::cpu
