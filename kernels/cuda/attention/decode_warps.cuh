#pragma once

#include "kernels/cuda/attention/decode_row.cuh"
#include "kernels/cuda/primitives/crew.cuh"

/// How the warps of a block make one result of what each found of a row.
namespace sluice::cuda::decode {

/// What the warps of a block found of a row, in shared memory.
template <class S>
struct WarpParts {
  float maximum[S::kWarps][16];
  float sum[S::kWarps][16];
};

/// Where what a block found of a row goes.
struct RowTarget {
  uint16_t* out;    // bf16 [group, dim]
  float* log_sums;  // [group], or null
  float* partial;   // if this is but a part of the row: values [group, dim], maxima [group], sums [group]; else null

  /// Takes outputs `at` and `at` + 1 of [group, dim], which are of `head`: weighted by powers beside `highest` that add up to
  /// `total`.
  template <int Dim>
  __device__ __forceinline__ void put(int group, int head, int at, float2 value, float highest, float total) const {
    if (partial == nullptr) {
      const float inverse = total > 0 ? __fdividef(1, total) : 0;
      *reinterpret_cast<uint32_t*>(out + at) = pack(value.x * inverse, value.y * inverse);
      if (log_sums != nullptr && at % Dim == 0) log_sums[head] = highest + log2f(total);
    } else {
      *reinterpret_cast<float2*>(partial + at) = value;
      if (at % Dim == 0) {
        partial[group * Dim + head] = highest;
        partial[group * (Dim + 1) + head] = total;
      }
    }
  }
};

/// The warps' parts of a row become one, kRows heads at a time. For the threads of a crew, of which this is `thread`, once all
/// have read those of the row before. merge: [warps][kRows][S::kMergeStride].
template <class Crew, int kRows, class Row, class Target>
__device__ __forceinline__ void merge_warps(const Row& mine, int group, const Target& to, WarpParts<typename Row::S>& parts,
                                            float* merge, int thread) {
  using S = typename Row::S;
  constexpr bool kWide = Row::kHalves == 2;
  constexpr int kDim = Row::kDim;
  const int warp = thread / 32;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < (kWide ? 2 : 1); ++half) {
    const float sum = mine.sum(half);
    if (lane % 4 == 0) {
      parts.maximum[warp][lane / 4 + 8 * half] = mine.maximum(half);
      parts.sum[warp][lane / 4 + 8 * half] = sum;
    }
  }
#pragma unroll 1
  for (int base = 0; base < group; base += kRows) {
    const bool upper = kWide && base >= 8;
    const int heads = min(kRows, group - base);
    const int place = lane / 4 + (upper ? 8 : 0) - base;
    if (base > 0) Crew::sync();
    if (place >= 0 && place < heads) {
      mine.store(upper ? 1 : 0, merge + (warp * kRows + place) * S::kMergeStride);
    }
    Crew::sync();
#pragma unroll 1
    for (int i = 2 * thread; i < heads * kDim; i += 2 * S::kThreads) {
      const int head = base + i / kDim;
      float highest = kMinusInfinity;
#pragma unroll
      for (int w = 0; w < S::kWarps; ++w) highest = fmaxf(highest, parts.maximum[w][head]);
      const float shift = highest == kMinusInfinity ? 0.0f : highest;
      float total = 0;
      float2 value = {0, 0};
#pragma unroll
      for (int w = 0; w < S::kWarps; ++w) {
        const float weight = power(parts.maximum[w][head] - shift);
        const float2 pair = *reinterpret_cast<const float2*>(merge + (w * kRows + i / kDim) * S::kMergeStride + i % kDim);
        total += weight * parts.sum[w][head];
        value.x += weight * pair.x;
        value.y += weight * pair.y;
      }
      to.template put<kDim>(group, head, base * kDim + i, value, highest, total);
    }
  }
}

}  // namespace sluice::cuda::decode
