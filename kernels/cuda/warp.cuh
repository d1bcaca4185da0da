#pragma once

#include <cstdint>

namespace sluice::cuda {

/// The sum over a warp's lanes, in the same order on each of them.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffU, value, mask);
  return value;
}

/// An 8 x 8 matrix of bf16, two neighbours of a row a lane, transposed.
__device__ __forceinline__ uint32_t transpose(uint32_t pair) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

}  // namespace sluice::cuda
