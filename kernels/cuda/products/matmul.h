#pragma once

#include <cublasLt.h>

#include <compare>
#include <map>

#include "kernels/cuda/primitives/tensor_map.h"
#include "kernels/cuda/products/decode_matmul.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/device.h"

namespace sluice::cuda {

/// A weight as bf16 [rows, columns]; float32 is rounded. One of a single row (the gain of a norm) is there in float32 as well.
class CudaWeight final : public Weight {
 public:
  CudaWeight(const void* values, DataType type, int64_t rows, int64_t columns);

  int64_t rows() const override { return rows_; }
  int64_t columns() const override { return columns_; }
  size_t bytes() const override { return matrix_.bytes() + vector_.bytes(); }
  Matrix matrix() const { return {matrix_.data(), DataType::kBF16, rows_, columns_, columns_}; }
  /// For DecodeMatmul; empty where tensor copies cannot have it, because of its shape.
  const TensorMap& map() const { return map_; }
  /// A weight of one row as float32 [columns]. Throws InternalError for others.
  const float* vector() const;

 private:
  int64_t rows_;
  int64_t columns_;
  DeviceMemory matrix_;
  DeviceMemory vector_;
  TensorMap map_;
};

/// Throws InternalError for a weight of another device.
const CudaWeight& as_cuda(const Weight& weight);

/// Products with weights: bf16 by bf16, summed in float32; few rows by DecodeMatmul, others by cuBLASLt. How a shape is computed
/// is asked for once.
class Matmul {
 public:
  Matmul();
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  /// out[rows, weight.rows] = x[rows, weight.columns] * weight^T; out is float32 or bf16, and so is x, which is rounded to bf16.
  void run(Matrix x, const CudaWeight& weight, const Matrix& out, Stream stream);
  /// Whether `run_gated` takes these: few rows of bf16.
  static bool takes_gated(const Matrix& x, const CudaWeight& weight, const Matrix& out);
  /// out[rows, weight.rows / 2] = silu(gate) * up, where x * weight^T is gate, then up.
  void run_gated(const Matrix& x, const CudaWeight& weight, const Matrix& out, Stream stream);
  /// Whether `run_best` takes these: few rows of bf16.
  static bool takes_best(const Matrix& x, const CudaWeight& weight);
  /// The greatest output of each row of x * weight^T, which is not stored; `best` is device memory with room for
  /// DecodeMatmul::most_blocks().
  void run_best(const Matrix& x, const CudaWeight& weight, sampling::BestTokens* best, Stream stream);
  /// What `run` does through cuBLASLt, whatever the shape; x is bf16.
  void run_library(const Matrix& x, const CudaWeight& weight, const Matrix& out, Stream stream);
  /// Differs after its scratch has moved.
  uintptr_t ground() const { return reinterpret_cast<uintptr_t>(rounded_.data()); }

 private:
  struct Shape {
    int64_t rows, outputs, inputs, x_stride, out_stride;
    DataType out;
    uint32_t x_alignment, out_alignment;             // bytes
    auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 takes it for a pointer
  };
  struct Plan {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t weight, x, out;
    cublasLtMatmulAlgo_t algorithm;
  };

  Plan& plan(const Shape& shape);

  cublasLtHandle_t handle_ = nullptr;
  DeviceMemory workspace_;
  DeviceMemory rounded_;  // x as bf16, where it comes as float32
  std::map<Shape, Plan> plans_;
  DecodeMatmul decode_;
};

}  // namespace sluice::cuda
