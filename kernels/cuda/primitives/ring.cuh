#pragma once

#include <cstdint>

/// What kernels have in common that stream weights or pages through rings in shared memory.
namespace sluice::cuda {

inline constexpr uint64_t kEvictFirst = 0x12F0000000000000;  // L2 policies, as CUTLASS encodes them
inline constexpr uint64_t kEvictLast = 0x14F0000000000000;

/// A number that each layer's kernels read, in L2 while they stream what they read once.
__device__ __forceinline__ int load_kept(const int* from) {
  int number;
  asm volatile("ld.global.L2::cache_hint.s32 %0, [%1], %2;" : "=r"(number) : "l"(from), "l"(kEvictLast) : "memory");
  return number;
}

/// A place in a ring, and which turn it is.
struct Turn {
  int index = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next(int count) {
    if (++index == count) {
      index = 0;
      parity ^= 1;
    }
  }
  /// The one that `next` made this of.
  __device__ __forceinline__ Turn before(int count) const {
    return index > 0 ? Turn{index - 1, parity} : Turn{count - 1, parity ^ 1};
  }
};

}  // namespace sluice::cuda
