#pragma once

#include "kernels/cuda/sampling/sample_order.cuh"

/// What greedy sampling picks from rows of logits, found by the product that computes them: they need not be stored.
namespace sluice::cuda::sampling {

/// Of some of a row's tokens.
struct alignas(16) BestToken {
  Word place = ~Word{0};  // of the first in the order
  Word damaged = 0;       // whether any logit is NaN or +inf

  __device__ __forceinline__ void join(const BestToken& other) {
    place = min(place, other.place);
    damaged |= other.damaged;
  }
  /// With that of the lane whose number differs by `mask`.
  __device__ __forceinline__ void join_lane(int mask) {
    join({__shfl_xor_sync(0xffffffffU, place, mask), __shfl_xor_sync(0xffffffffU, damaged, mask)});
  }
};

/// Of up to kRows rows, by blocks, whose tokens follow this in memory.
struct alignas(16) BestTokens {
  static constexpr int kRows = 64;  // as many as DecodeMatmul takes

  int blocks;

  /// Bytes for so many blocks.
  __host__ static size_t bytes(int blocks) {
    return sizeof(BestTokens) + static_cast<size_t>(blocks) * kRows * sizeof(BestToken);
  }
  __device__ BestToken* of_block(int block) { return reinterpret_cast<BestToken*>(this + 1) + block * kRows; }
  __device__ const BestToken* of_block(int block) const { return reinterpret_cast<const BestToken*>(this + 1) + block * kRows; }
};

}  // namespace sluice::cuda::sampling
