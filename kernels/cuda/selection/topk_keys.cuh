#pragma once

#include <cuda_runtime.h>

#include <cstdint>

/// Order keys of scores, and what selection knows of the k-th best.
namespace sluice::cuda::topk {

// Order keys as in kernels/cpu/selection/topk.h, but for room below NaN for places past the end of a row.
inline constexpr uint32_t kNoKey = 0;
inline constexpr uint32_t kNanKey = 1;
inline constexpr uint32_t kLowestKey = 0x007fffffU;  // of -inf
inline constexpr uint32_t kEndKey = 0xff800001U;     // above +inf

inline constexpr int kWarp = 32;
inline constexpr int kStep = 4 * kWarp;  // keys that a warp visits at once, four a lane
inline constexpr int kMaskSteps = 8;     // whose outcomes, a bit each, fill a word a lane
inline constexpr int kMaxCluster = 16;
inline constexpr int kCandidates = 8192;  // that the first block of a cluster has room for

inline __device__ uint32_t order_key(uint32_t bits) {
  if ((bits & 0x7fffffffU) > 0x7f800000U) return kNanKey;
  if (bits == 0x80000000U) bits = 0;
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000U);
}

/// Scores whose keys are at least `key`, which is above kNanKey, are those >= this (NaN for kEndKey).
inline __device__ float score_of(uint32_t key) {
  key = max(key, kLowestKey);
  return __uint_as_float((key & 0x80000000U) != 0 ? key ^ 0x80000000U : ~key);
}

/// The k-th best key is at least `begin` and below `end`.
struct Bracket {
  uint32_t begin = kNanKey;
  uint32_t end = kEndKey;
  int reaching_begin = 0;  // keys >= begin, at least k
  int reaching_end = 0;    // keys >= end, fewer than k
};

/// What is taken: keys >= first, and the first `ties` keys that equal first - 1.
struct Cut {
  uint32_t first = 0;
  int ties = 0;
};

inline __device__ bool is_exact(const Bracket& bracket, int k) {
  return bracket.reaching_begin == k || bracket.end - bracket.begin == 1;
}

inline __device__ Cut exact_cut(const Bracket& bracket, int k) {
  if (bracket.reaching_begin == k) return {bracket.begin, 0};
  return {bracket.end, k - bracket.reaching_end};
}

/// Of the keys >= cut.first (x) and of those that tie (y).
struct Counts {
  uint2 before;       // this warp, in the order of the row
  uint32_t in_block;  // the part of before.x that lies in this block
  uint2 all;
};

template <class Is>
__device__ uint32_t number_of(const uint4& keys, const Is& is) {
  return is(keys.x) + is(keys.y) + is(keys.z) + is(keys.w);
}
template <class Is>
__device__ uint32_t bits_of(const uint4& keys, const Is& is) {
  return is(keys.x) | is(keys.y) << 1 | is(keys.z) << 2 | is(keys.w) << 3;
}

// Two or three instructions a score, which compilers make more of.

/// count += score >= first.
inline __device__ void count_reaching(uint32_t& count, uint32_t score, float first) {
  asm("{ .reg .pred p; setp.ge.f32 p, %1, %2; @p add.u32 %0, %0, 1; }" : "+r"(count) : "f"(__uint_as_float(score)), "f"(first));
}
/// mask |= score >= first ? bit : 0.
inline __device__ void mark_reaching(uint32_t& mask, uint32_t bit, uint32_t score, float first) {
  asm("{ .reg .pred p; setp.ge.f32 p, %1, %2; @p or.b32 %0, %0, %3; }"
      : "+r"(mask)
      : "f"(__uint_as_float(score)), "f"(first), "r"(bit));
}
/// Appends the score at `address` in shared memory if `mask` has the bit.
inline __device__ void append_marked(uint32_t& address, uint32_t mask, uint32_t bit, uint32_t score) {
  asm volatile(
      "{ .reg .pred p; .reg .u32 t; and.b32 t, %1, %2; setp.ne.u32 p, t, 0; @p st.shared.u32 [%0], %3; @p add.u32 %0, %0, 4; }"
      : "+r"(address)
      : "r"(mask), "r"(bit), "r"(score)
      : "memory");
}

}  // namespace sluice::cuda::topk
