#pragma once

#include <cstdint>

namespace sluice::cuda {

/// Gives `take` each of [first, end) that `counts`, in order, with its rank; returns how many there are. By all threads of a
/// block of kThreads, behind a barrier.
template <int kThreads, class Counts, class Take>
__device__ int compact(int first, int end, const Counts& counts, const Take& take) {
  constexpr int kWarps = kThreads / 32;
  __shared__ int of_warps[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  int before = 0;
  for (int begin = first; begin < end; begin += kThreads) {
    const int each = begin + static_cast<int>(threadIdx.x);
    const bool is_one = each < end && counts(each);
    const uint32_t ones = __ballot_sync(0xffffffffU, is_one);
    if (threadIdx.x % 32 == 0) of_warps[warp] = __popc(ones);
    __syncthreads();
    int rank = before + __popc(ones & ((1U << threadIdx.x % 32) - 1));
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) rank += of_warps[w];
      before += of_warps[w];
    }
    if (is_one) take(each, rank);
    __syncthreads();
  }
  return before;
}

}  // namespace sluice::cuda
