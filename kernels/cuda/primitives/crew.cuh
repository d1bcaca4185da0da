#pragma once

/// Threads of a block that take steps together, and how they meet. Needs no header of CUDA's, so that generated kernels can have
/// it, too.
namespace sluice::cuda {

/// All of the block's.
struct WholeBlock {
  static constexpr bool kIsWhole = true;

  static __device__ __forceinline__ void sync() { __syncthreads(); }
  /// How many of them say yes; a barrier.
  static __device__ __forceinline__ int count(bool yes) { return __syncthreads_count(yes); }
};

/// kThreads of the block's, whole warps, that meet at hardware barrier kBarrier, 1 to 15.
template <int kBarrier, int kThreads>
struct PartOfBlock {
  static constexpr bool kIsWhole = false;

  static __device__ __forceinline__ void sync() {
    asm volatile("barrier.sync.aligned %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
  }
  static __device__ __forceinline__ int count(bool yes) {
    int number;
    asm volatile("{ .reg .pred yes; setp.ne.u32 yes, %1, 0; barrier.red.popc.aligned.u32 %0, %2, %3, yes; }"
                 : "=r"(number)
                 : "r"(static_cast<unsigned>(yes)), "n"(kBarrier), "n"(kThreads)
                 : "memory");
    return number;
  }
};

}  // namespace sluice::cuda
