#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>
#include <cstring>

#include "kernels/cuda/paged_kv.h"

/// What the attention kernels have in common on the device.
namespace sluice::cuda {

inline constexpr float kLog2E = 1.44269504088896341f;

inline CUtensorMap to_cuda(const TensorMap& map) {
  CUtensorMap copy;
  std::memcpy(&copy, &map, sizeof(copy));
  return copy;
}

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Barriers in shared memory that copies complete (PTX ISA, "mbarrier"), by their shared address.

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives, and makes the phase wait for `bytes` of copies.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Two numbers as bf16 in one register, as tensor cores take them.
__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

/// 2^exponent; what is less than the least normal number becomes zero.
__device__ __forceinline__ float power(float exponent) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
  return result;
}

/// Divides numbers below 2^31 by one that the host knows, in two instructions instead of a chain of twenty (Granlund and
/// Montgomery, "Division by invariant integers using multiplication", 1994).
class Divisor {
 public:
  explicit Divisor(int divisor) : divisor_(divisor) {
    while ((int64_t{1} << bits_) < divisor) ++bits_;
    multiplier_ = static_cast<uint32_t>(((uint64_t{1} << (31 + bits_)) + divisor - 1) / divisor);
  }
  __device__ __forceinline__ int quotient(int number) const {
    return static_cast<int>(static_cast<uint64_t>(static_cast<uint32_t>(number)) * multiplier_ >> (31 + bits_));
  }
  __device__ __forceinline__ int remainder(int number) const { return number - quotient(number) * divisor_; }

 private:
  uint32_t multiplier_ = 0;
  int bits_ = 0;
  int divisor_;
};

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
