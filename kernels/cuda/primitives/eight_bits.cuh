#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "scripting/graph/types.h"

namespace sluice::cuda {

/// The nearest 8-bit number, ties to even; beyond the largest (infinity too): the largest; NaN keeps its sign.
__device__ __forceinline__ uint8_t narrow_to_byte(DataType type, float value) {
  if (isnan(value)) return static_cast<uint8_t>(__float_as_uint(value) >> 31 << 7 | 0x7f);
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, type == DataType::kE4M3 ? __NV_E4M3 : __NV_E5M2);
}

__device__ __forceinline__ float widen_byte(DataType type, uint8_t value) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(value, type == DataType::kE4M3 ? __NV_E4M3 : __NV_E5M2)));
}

}  // namespace sluice::cuda
