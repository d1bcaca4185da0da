#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention_math.cuh"
#include "kernels/cuda/primitives/warp.cuh"
#include "scripting/graph/types.h"

/// Numbers of the types of KV, as the tensor cores take them: bf16 as it is, 8-bit numbers as float16, which holds them exactly.
namespace sluice::cuda::decode {

__device__ __forceinline__ void load_matrices(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void load_transposed(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// c[16 heads, 8] += a[16 heads, 16] * b[16, 8], of bf16 or of float16.
template <bool Bf16>
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (Bf16) {
    multiply_bf16(c, a[0], a[1], a[2], a[3], b0, b1);
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

__device__ __forceinline__ uint32_t pack_half(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Two pairs of float16.
struct Pairs {
  uint32_t first, second;
};

/// Four 8-bit numbers as float16: those of bytes 0 and 1, and of 2 and 3.
template <DataType Type>
__device__ __forceinline__ Pairs widen(uint32_t bytes) {
  Pairs pairs;
  if constexpr (Type == DataType::kE4M3) {
    asm("{\n.reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n}"
        : "=r"(pairs.first), "=r"(pairs.second)
        : "r"(bytes));
  } else {  // e5m2 is the upper half of a float16
    pairs.first = __byte_perm(bytes, 0, 0x1404);
    pairs.second = __byte_perm(bytes, 0, 0x3424);
  }
  return pairs;
}

/// The same, of bytes 0 and 2, and of 1 and 3.
template <DataType Type>
__device__ __forceinline__ Pairs widen_alternate(uint32_t bytes) {
  if constexpr (Type == DataType::kE4M3) return widen<Type>(__byte_perm(bytes, 0, 0x3120));
  return {__byte_perm(bytes, 0, 0x2404), __byte_perm(bytes, 0, 0x3414)};
}

/// A power of two for a head of Q whose largest magnitude is given. Multiplied with it, a bf16 number of at least 2^-22 of that
/// magnitude is exact in float16, and no other is off by more than 2^-33 of it. `inverse` undoes it.
struct HalfScale {
  float factor, inverse;

  __device__ __forceinline__ explicit HalfScale(float largest) {
    constexpr int kLargest = 8;                                              // exponent of the largest magnitude afterwards
    const auto exponent = static_cast<int>(__float_as_uint(largest) >> 23);  // biased by 127
    const int target = min(2 * 127 + kLargest - exponent, 253);
    factor = __uint_as_float(static_cast<uint32_t>(target) << 23);
    inverse = __uint_as_float(static_cast<uint32_t>(254 - target) << 23);
  }
};

__device__ __forceinline__ float low_bf16(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_bf16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000U); }

}  // namespace sluice::cuda::decode
