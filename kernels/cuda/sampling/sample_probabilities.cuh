#pragma once

#include "kernels/cuda/sampling/sample_order.cuh"
#include "kernels/device/picks.h"

namespace sluice::cuda::sampling {

/// Log-probabilities of one row, in the hands of a block. The same for every run: sums have a fixed order.
class ProbabilityFinder {
 public:
  static constexpr int kThreads = 1024;
  static constexpr int kWarps = kThreads / 32;

  struct Shared {
    Word places[kWarps];
    double sums[kWarps];
  };

  __device__ ProbabilityFinder(Shared& shared, const float* logits, int columns)
      : shared_(shared), logits_(logits), columns_(columns) {}

  /// Of `token`, and of the `likely` most likely.
  __device__ void find(int token, int likely, RowProbabilities& out) {
    Word mine = first_after(0);
    Word best = least(mine);
    const float top = logit_at(best);
    const double log_sum = top + log(sum_of_shares(top));
    if (threadIdx.x == 0) out.of_token = static_cast<float>(logits_[token] - log_sum);
#pragma unroll 1
    for (int i = 0; i < likely; ++i) {
      if (threadIdx.x == 0) out.likely[i] = {token_at(best), static_cast<float>(logit_at(best) - log_sum)};
      if (i + 1 == likely) break;
      if (mine == best) mine = first_after(best + 1);  // of the one thread whose token it was
      best = least(mine);
    }
  }

 private:
  /// Of this thread's tokens, the first in the order from `place` on.
  __device__ Word first_after(Word place) const {
    Word first = ~Word{0};
#pragma unroll 4
    for (int id = static_cast<int>(threadIdx.x); id < columns_; id += kThreads) {
      const Word here = place_of(logits_[id], id);
      if (here >= place) first = min(first, here);
    }
    return first;
  }

  __device__ Word least(Word mine) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) mine = min(mine, __shfl_xor_sync(0xffffffffU, mine, mask));
    __syncthreads();  // the last result may not have been read everywhere
    if (threadIdx.x % 32 == 0) shared_.places[threadIdx.x / 32] = mine;
    __syncthreads();
    Word first = shared_.places[threadIdx.x % 32];
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) first = min(first, __shfl_xor_sync(0xffffffffU, first, mask));
    return first;
  }

  /// Of all tokens, beside that of a logit `top`.
  __device__ double sum_of_shares(float top) {
    float part = 0;
#pragma unroll 4
    for (int id = static_cast<int>(threadIdx.x); id < columns_; id += kThreads) part += expf(logits_[id] - top);
    double sum = part;
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, mask);
    if (threadIdx.x % 32 == 0) shared_.sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = shared_.sums[threadIdx.x % 32];
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, mask);
    return sum;
  }

  Shared& shared_;
  const float* logits_;
  int columns_;
};

}  // namespace sluice::cuda::sampling
