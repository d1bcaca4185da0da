#include "kernels/cuda/products/matmul.h"

#include <fmt/format.h>

#include <bit>
#include <vector>

#include "kernels/cpu/simd/bfloat16.h"
#include "kernels/cuda/products/cublas_lt.h"

namespace sluice::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // what cuBLAS recommends for Hopper

void check_blas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw InternalError(fmt::format("{}: {}", what, cublas_lt().status_name(status)));
}
#define SLUICE_CHECK_BLAS(call) check_blas((call), #call)

/// The largest power of two up to 256 that divides the address of every row.
uint32_t alignment_of(const Matrix& matrix) {
  const auto bits = reinterpret_cast<uintptr_t>(matrix.data) | matrix.stride * size_of(matrix.type) | 256U;
  return uint32_t{1} << std::countr_zero(bits);
}

DeviceMemory on_device(const void* values, size_t bytes) {
  DeviceMemory memory(bytes);
  memory.upload(values, bytes);
  return memory;
}

}  // namespace

CudaWeight::CudaWeight(const void* values, DataType type, int64_t rows, int64_t columns) : rows_(rows), columns_(columns) {
  if (rows < 1 || columns < 1) throw InputError(fmt::format("a weight of {} x {} cannot be made", rows, columns));
  const auto count = static_cast<size_t>(rows * columns);
  if (type == DataType::kBF16) {
    const auto* narrow = static_cast<const uint16_t*>(values);
    matrix_ = on_device(narrow, count * sizeof(uint16_t));
    if (rows == 1) {
      std::vector<float> wide(count);
      for (size_t i = 0; i < count; ++i) wide[i] = cpu::widen(narrow[i]);
      vector_ = on_device(wide.data(), count * sizeof(float));
    }
  } else if (type == DataType::kF32) {
    const auto* wide = static_cast<const float*>(values);
    std::vector<uint16_t> narrow(count);
    for (size_t i = 0; i < count; ++i) narrow[i] = cpu::round_to_bf16(wide[i]);
    matrix_ = on_device(narrow.data(), count * sizeof(uint16_t));
    if (rows == 1) vector_ = on_device(wide, count * sizeof(float));
  } else {
    throw InputError(fmt::format("device \"cuda\" takes weights as bf16 or f32, not as {}", name_of(type)),
                     "convert the checkpoint to bf16");
  }
  if (rows > 1 && columns % 8 == 0) map_ = map_matrix(matrix(), DecodeMatmul::kBoxOutputs);
}

const CudaWeight& as_cuda(const Weight& weight) {
  const auto* mine = dynamic_cast<const CudaWeight*>(&weight);
  if (mine == nullptr) throw InternalError("a weight of another device was given to the GPU");
  return *mine;
}

const float* CudaWeight::vector() const {
  if (rows_ != 1) throw InternalError(fmt::format("a gain must have 1 row, not {}", rows_));
  return vector_.as<float>();
}

Matmul::Matmul() : workspace_(kWorkspaceBytes) {
  const NoRecording outside;  // cuBLASLt uses the default stream
  SLUICE_CHECK_BLAS(cublas_lt().create(&handle_));
}

Matmul::~Matmul() {
  const NoRecording outside;
  cublas_lt().destroy(handle_);
}

Matmul::Plan& Matmul::plan(const Shape& shape) {
  const auto known = plans_.find(shape);
  if (known != plans_.end()) return known->second;
  // cuBLAS counts in columns: a row-major [rows, n] is its column-major [n, rows]. So out^T [outputs, rows] = weight * x^T, and
  // the weight, [inputs, outputs] to it, is to be transposed.
  Plan plan{};
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const cudaDataType_t out = shape.out == DataType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
  SLUICE_CHECK_BLAS(cublas_lt().matmul_desc_init(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  SLUICE_CHECK_BLAS(
      cublas_lt().matmul_desc_set_attribute(&plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
  SLUICE_CHECK_BLAS(cublas_lt().matrix_layout_init(&plan.weight, CUDA_R_16BF, shape.inputs, shape.outputs, shape.inputs));
  SLUICE_CHECK_BLAS(cublas_lt().matrix_layout_init(&plan.x, CUDA_R_16BF, shape.inputs, shape.rows, shape.x_stride));
  SLUICE_CHECK_BLAS(cublas_lt().matrix_layout_init(&plan.out, out, shape.outputs, shape.rows, shape.out_stride));

  cublasLtMatmulPreferenceOpaque_t preference{};
  SLUICE_CHECK_BLAS(cublas_lt().matmul_preference_init(&preference));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    SLUICE_CHECK_BLAS(cublas_lt().matmul_preference_set_attribute(&preference, attribute, &value, sizeof(value)));
  };
  const Matrix weight{nullptr, DataType::kBF16, shape.outputs, shape.inputs, shape.inputs};  // cudaMalloc aligns it
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(weight));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.x_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.out_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.out_alignment);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = cublas_lt().matmul_algo_get_heuristic(handle_, &plan.operation, &plan.weight, &plan.x, &plan.out,
                                                                      &plan.out, &preference, 1, &result, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    throw InternalError(fmt::format("cuBLASLt has no product of [{}, {}] by [{}, {}]: {}", shape.rows, shape.inputs,
                                    shape.outputs, shape.inputs, cublas_lt().status_name(status)));
  }
  plan.algorithm = result.algo;
  return plans_.emplace(shape, plan).first->second;
}

void Matmul::run(Matrix x, const CudaWeight& weight, const Matrix& out, Stream stream) {
  if (x.rows == 0) return;
  if (x.type != DataType::kBF16) {
    const size_t bytes = x.rows * x.columns * sizeof(uint16_t);
    if (rounded_.bytes() < bytes) rounded_ = DeviceMemory(bytes);
    const Matrix rounded{rounded_.data(), DataType::kBF16, x.rows, x.columns, x.columns};
    gather_rows(x, nullptr, rounded, stream);
    x = rounded;
  }
  if (DecodeMatmul::takes(x, weight.matrix(), out)) {
    decode_.run(x, weight.matrix(), weight.map(), out, stream);
  } else {
    run_library(x, weight, out, stream);
  }
}

bool Matmul::takes_gated(const Matrix& x, const CudaWeight& weight, const Matrix& out) {
  return out.type == DataType::kBF16 && DecodeMatmul::takes(x, weight.matrix(), out);
}

void Matmul::run_gated(const Matrix& x, const CudaWeight& weight, const Matrix& out, Stream stream) {
  if (x.rows > 0) decode_.run_gated(x, weight.matrix(), out, stream);
}

bool Matmul::takes_best(const Matrix& x, const CudaWeight& weight) {
  return x.rows > 0 && DecodeMatmul::takes(x, weight.matrix(), {});
}

void Matmul::run_best(const Matrix& x, const CudaWeight& weight, sampling::BestTokens* best, Stream stream) {
  decode_.run_best(x, weight.matrix(), weight.map(), best, stream);
}

void Matmul::run_library(const Matrix& x, const CudaWeight& weight, const Matrix& out, Stream stream) {
  Plan& how = plan({.rows = x.rows,
                    .outputs = weight.rows(),
                    .inputs = weight.columns(),
                    .x_stride = x.stride,
                    .out_stride = out.stride,
                    .out = out.type,
                    .x_alignment = alignment_of(x),
                    .out_alignment = alignment_of(out)});
  const float one = 1;
  const float zero = 0;
  SLUICE_CHECK_BLAS(cublas_lt().matmul(handle_, &how.operation, &one, weight.matrix().data, &how.weight, x.data, &how.x, &zero,
                                       out.data, &how.out, out.data, &how.out, &how.algorithm, workspace_.data(), kWorkspaceBytes,
                                       stream));
}

}  // namespace sluice::cuda
