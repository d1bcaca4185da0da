#pragma once

#include <cublasLt.h>

#include <cstdint>

namespace sluice::cuda {

/// The functions of cuBLASLt that products are made with, under their own names without "cublasLt".
struct CublasLt {
  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtDestroy) destroy;
  decltype(&::cublasLtGetStatusName) status_name;
  decltype(&::cublasLtMatmul) matmul;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) matmul_algo_get_heuristic;
  decltype(&::cublasLtMatmulDescSetAttribute) matmul_desc_set_attribute;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) matmul_preference_set_attribute;

  cublasStatus_t matmul_desc_init(cublasLtMatmulDescOpaque_t* desc, cublasComputeType_t compute, cudaDataType_t scale) const {
    return matmul_desc_init_internal(desc, sizeof(*desc), compute, scale);
  }
  cublasStatus_t matrix_layout_init(cublasLtMatrixLayoutOpaque_t* layout, cudaDataType type, uint64_t rows, uint64_t columns,
                                    int64_t leading) const {
    return matrix_layout_init_internal(layout, sizeof(*layout), type, rows, columns, leading);
  }
  cublasStatus_t matmul_preference_init(cublasLtMatmulPreferenceOpaque_t* preference) const {
    return matmul_preference_init_internal(preference, sizeof(*preference));
  }

  decltype(&::cublasLtMatmulDescInit_internal) matmul_desc_init_internal;
  decltype(&::cublasLtMatrixLayoutInit_internal) matrix_layout_init_internal;
  decltype(&::cublasLtMatmulPreferenceInit_internal) matmul_preference_init_internal;
};

/// cuBLASLt, loaded at the first call. Throws InputError where it is missing.
const CublasLt& cublas_lt();

}  // namespace sluice::cuda
