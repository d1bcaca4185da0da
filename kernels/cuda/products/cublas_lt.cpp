#include "kernels/cuda/products/cublas_lt.h"

#include "kernels/cuda/runtime/shared_library.h"

namespace sluice::cuda {
namespace {

CublasLt load() {
  const SharedLibrary library("cuBLASLt, which multiplies by weights on the GPU,", {"libcublasLt.so.13"},
                              "install cuBLAS 13 (package libcublas-13-0 of NVIDIA's repository, or a CUDA toolkit) and name the "
                              "folder of libcublasLt.so.13 in LD_LIBRARY_PATH, or use --device cpu");
  CublasLt functions{};
  library.find("cublasLtCreate", functions.create);
  library.find("cublasLtDestroy", functions.destroy);
  library.find("cublasLtGetStatusName", functions.status_name);
  library.find("cublasLtMatmul", functions.matmul);
  library.find("cublasLtMatmulAlgoGetHeuristic", functions.matmul_algo_get_heuristic);
  library.find("cublasLtMatmulDescSetAttribute", functions.matmul_desc_set_attribute);
  library.find("cublasLtMatmulPreferenceSetAttribute", functions.matmul_preference_set_attribute);
  library.find("cublasLtMatmulDescInit_internal", functions.matmul_desc_init_internal);
  library.find("cublasLtMatrixLayoutInit_internal", functions.matrix_layout_init_internal);
  library.find("cublasLtMatmulPreferenceInit_internal", functions.matmul_preference_init_internal);
  return functions;
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt functions = load();
  return functions;
}

}  // namespace sluice::cuda
