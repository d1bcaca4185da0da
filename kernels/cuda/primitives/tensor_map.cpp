#include "kernels/cuda/primitives/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "kernels/cuda/runtime/driver.h"
#include "kernels/device/checks.h"
#include "scripting/base/error.h"

namespace sluice::cuda {

namespace {

template <size_t Axes>
struct Extents {
  cuuint64_t sizes[Axes];        // elements
  cuuint64_t strides[Axes - 1];  // bytes, of all axes but the first
  cuuint32_t box[Axes];
};

template <size_t Axes>
TensorMap map_bf16(void* data, const Extents<Axes>& extents) {
  cuuint32_t steps[Axes];
  std::fill(std::begin(steps), std::end(steps), 1);
  CUtensorMap map;
  const CUresult result = encode_tiled()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, Axes, data, extents.sizes, extents.strides,
                                         extents.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw InternalError(fmt::format("cuTensorMapEncodeTiled failed with {}", static_cast<int>(result)));
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
  TensorMap opaque;
  std::memcpy(opaque.bytes, &map, sizeof(map));
  return opaque;
}

}  // namespace

TensorMap map_matrix(const Matrix& matrix, int rows) {
  return map_bf16<2>(matrix.data, {.sizes = {static_cast<cuuint64_t>(matrix.columns), static_cast<cuuint64_t>(matrix.rows)},
                                   .strides = {static_cast<cuuint64_t>(matrix.stride) * sizeof(uint16_t)},
                                   .box = {64, static_cast<cuuint32_t>(rows)}});
}

TensorMap map_row_pairs(const Matrix& matrix, int groups) {
  require_equal("map_row_pairs", "rows past the last group of 16", matrix.rows % 16, 0);
  const auto row = static_cast<cuuint64_t>(matrix.stride) * sizeof(uint16_t);
  const auto rows = static_cast<cuuint64_t>(matrix.rows);
  return map_bf16<4>(matrix.data, {.sizes = {static_cast<cuuint64_t>(matrix.columns), 8, 2, rows / 16},
                                   .strides = {row, rows / 2 * row, 8 * row},
                                   .box = {64, 8, 2, static_cast<cuuint32_t>(groups)}});
}

TensorMap map_tiles(const Matrix& matrix, bool pairs) {
  require_equal("map_tiles", "rows past the last tile of 16", matrix.rows % 16, 0);
  require_equal("map_tiles", "columns past the last 64", matrix.columns % 64, 0);
  const auto row = static_cast<cuuint64_t>(matrix.stride) * sizeof(uint16_t);
  const auto rows = static_cast<cuuint64_t>(matrix.rows);
  const cuuint64_t half = pairs ? rows / 2 : 8;  // rows from the first eight of a tile to the others
  return map_bf16<5>(matrix.data, {.sizes = {64, 8, 2, static_cast<cuuint64_t>(matrix.columns) / 64, rows / 16},
                                   .strides = {row, half * row, 64 * sizeof(uint16_t), (pairs ? 8 : 16) * row},
                                   .box = {64, 8, 2, 4, 1}});
}

}  // namespace sluice::cuda
