#pragma once

#include <cstdint>

/// What warps that attend do with numbers. Needs no header of CUDA's, so that generated kernels can have it, too.
namespace sluice::cuda {

inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kMinusInfinity = __builtin_bit_cast(float, 0xff800000U);

/// Two numbers as bf16 in one register, as tensor cores take them.
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// 2^exponent; what is less than the least normal number becomes zero.
__device__ __forceinline__ float power(float exponent) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
  return result;
}

/// Largest of the four threads that hold a row.
__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 2));
}

__device__ __forceinline__ float quad_sum(float value) {
  value += __shfl_xor_sync(0xffffffffU, value, 1);
  return value + __shfl_xor_sync(0xffffffffU, value, 2);
}

}  // namespace sluice::cuda
