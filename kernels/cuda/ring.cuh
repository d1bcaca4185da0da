#pragma once

#include <cstdint>

/// What kernels have in common that stream weights or pages through rings in shared memory.
namespace sluice::cuda {

inline constexpr uint64_t kEvictFirst = 0x12F0000000000000;  // L2 policies, as CUTLASS encodes them
inline constexpr uint64_t kEvictLast = 0x14F0000000000000;

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
};

}  // namespace sluice::cuda
