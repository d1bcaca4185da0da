#include "kernels/cuda/tensor_map.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/cuda/driver.h"
#include "scripting/graph/error.h"

namespace sluice::cuda {

TensorMap map_matrix(const Matrix& matrix, int rows) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(matrix.columns), static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(matrix.stride) * sizeof(uint16_t)};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(rows)};
  const cuuint32_t steps[2] = {1, 1};
  CUtensorMap map;
  const CUresult result = encode_tiled()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, matrix.data, sizes, strides, box, steps,
                                         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw InternalError(fmt::format("cuTensorMapEncodeTiled failed with {}", static_cast<int>(result)));
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
  TensorMap opaque;
  std::memcpy(opaque.bytes, &map, sizeof(map));
  return opaque;
}

}  // namespace sluice::cuda
