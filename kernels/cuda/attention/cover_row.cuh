#pragma once

#include "kernels/cuda/attention/decode_row.cuh"

/// What a warp has of a row under a cover.
namespace sluice::cuda::decode {

/// A tile of values that stand for pages, in shared memory: a row of kRowBytes for each, so that eight of them lie in different
/// banks.
template <DataType Type, int Dim>
struct SummaryTile {
  static constexpr int kEntries = Type == DataType::kBF16 ? 32 : 16;  // about as many bytes as a tile of tokens
  static constexpr int kValueBytes = Dim * 2;
  static constexpr int kRowBytes = kValueBytes + 16;
  static constexpr int kBytes = kEntries * kRowBytes;
};

/// A row of 8-bit values that a copy has brought becomes bf16, which holds them exactly. By all lanes of a warp.
template <DataType Type, int Dim>
__device__ __forceinline__ void widen_values(uint8_t* row) {
  const int lane = threadIdx.x % 32;
  const bool has_some = lane < Dim / 8;
  uint2 narrow = {0, 0};
  if (has_some) narrow = reinterpret_cast<const uint2*>(row)[lane];
  __syncwarp();
  const Pairs low = widen<Type>(narrow.x);
  const Pairs high = widen<Type>(narrow.y);
  const auto as_bf16 = [](uint32_t halves) {
    float first, second;
    asm("{\n.reg .f16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
        : "=f"(first), "=f"(second)
        : "r"(halves));
    return pack(first, second);
  };
  if (has_some) {
    reinterpret_cast<uint4*>(row)[lane] = {as_bf16(low.first), as_bf16(low.second), as_bf16(high.first), as_bf16(high.second)};
  }
}

/// One softmax of a row over pages that were attended to before, and over summaries. A thread holds heads as WarpRow does, and of
/// every 8 channels two.
template <class Row, DataType Type, int Dim>
class CoverRow {
 public:
  using S = typename Row::S;
  using Tile = SummaryTile<Type, Dim>;
  static constexpr int kHalves = Row::kHalves;
  static constexpr int kDim = Dim;

  __device__ __forceinline__ float maximum(int half) const { return maximum_[half]; }
  __device__ __forceinline__ float sum(int half) const { return quad_sum(sum_[half]); }
  __device__ __forceinline__ void store(int half, float* target) const {
    const int quad = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < Dim / 8; ++n) {
      *reinterpret_cast<float2*>(target + 8 * n + 2 * quad) =
          half == 0 ? float2{output_[n][0], output_[n][1]} : float2{output_[n][2], output_[n][3]};
    }
  }

  /// Adds what `row` has found, as it weighs.
  __device__ __forceinline__ void add(const Row& row) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const float sum = row.sum(half);
      join(row, half, row.maximum(half), sum, 1, sum != 0);
    }
  }
  /// Adds it with the weight 2^logit, by half.
  __device__ __forceinline__ void add_as(const Row& row, const float (&logits)[2]) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const float sum = row.sum(half);
      join(row, half, logits[half], 1, __fdividef(1, sum), sum != 0);
    }
  }

  /// Adds the values of a tile: logits in base 2, -inf of those that do not count. [entry / 8][half][of two]
  __device__ __forceinline__ void add(uint32_t tile, const float (&logits)[Tile::kEntries / 8][2][2]) {
    uint32_t weights[Tile::kEntries / 16][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half == kHalves) {
#pragma unroll
        for (int k = 0; k < Tile::kEntries / 16; ++k) weights[k][half] = weights[k][half + 2] = 0;
        break;
      }
      float largest = kMinusInfinity;
#pragma unroll
      for (int n = 0; n < Tile::kEntries / 8; ++n) largest = fmaxf(largest, fmaxf(logits[n][half][0], logits[n][half][1]));
      const float shift = raise(half, quad_max(largest));
#pragma unroll
      for (int n = 0; n < Tile::kEntries / 8; ++n) {
        const float first = power(logits[n][half][0] - shift);
        const float second = power(logits[n][half][1] - shift);
        sum_[half] += first + second;
        weights[n / 2][2 * (n % 2) + half] = pack(first, second);
      }
    }
    const int lane = threadIdx.x % 32;
    const int entry = lane % 8 + lane / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < Tile::kEntries / 16; ++k) {
#pragma unroll
      for (int chunk = 0; chunk < Dim / 8; chunk += 2) {
        uint32_t values[4];
        load_transposed(tile + (16 * k + entry) * Tile::kRowBytes + (chunk + lane / 16) * 16, values);
        multiply<true>(output_[chunk], weights[k], values[0], values[1]);
        multiply<true>(output_[chunk + 1], weights[k], values[2], values[3]);
      }
    }
  }

 private:
  /// Powers are taken beside a larger number from now on, if `largest` is one; returns it, or 0 where all so far is -inf.
  __device__ __forceinline__ float raise(int half, float largest) {
    const float higher = fmaxf(maximum_[half], largest);
    const float shift = higher == kMinusInfinity ? 0.0f : higher;
    if (__any_sync(0xffffffffU, maximum_[half] != higher)) {
      const float rescale = power(maximum_[half] - shift);
#pragma unroll
      for (int n = 0; n < Dim / 8; ++n) {
        output_[n][2 * half] *= rescale;
        output_[n][2 * half + 1] *= rescale;
      }
      sum_[half] *= rescale;
    }
    maximum_[half] = higher;
    return shift;
  }

  /// Adds the output of a row, `factor` times, and the sum that goes with it, both of powers beside `maximum`, if there is any.
  __device__ __forceinline__ void join(const Row& row, int half, float maximum, float sum, float factor, bool any) {
    const float shift = raise(half, any ? maximum : kMinusInfinity);
    const float weight = any ? power(maximum - shift) : 0.0f;
    if (threadIdx.x % 4 == 0) sum_[half] += weight * sum;
#pragma unroll
    for (int n = 0; n < Dim / 8; n += 2) {
      const typename Row::FourChannels four = row.channels(half, n);
      if (!any) continue;
      output_[n][2 * half] += weight * (four.low.x * factor);
      output_[n][2 * half + 1] += weight * (four.low.y * factor);
      output_[n + 1][2 * half] += weight * (four.high.x * factor);
      output_[n + 1][2 * half + 1] += weight * (four.high.y * factor);
    }
  }

  float output_[Dim / 8][4] = {};
  float maximum_[2] = {kMinusInfinity, kMinusInfinity};
  float sum_[2] = {0, 0};  // this thread's share
};

/// Adds the summaries of a tile, whose values are there once `wait()` returns, of entries that `counts(entry)`; a head's logit
/// for one is `logit(entry, head)`, in base 2. `type` is what the values were copied as. By all lanes of a warp.
template <class Tile, class All, class Counts, class Logit, class Wait>
__device__ __forceinline__ void attend_summaries(uint8_t* values, DataType type, const Counts& counts, const Logit& logit,
                                                 const Wait& wait, All& all) {
  constexpr int kEntries = Tile::kEntries;
  constexpr int kDim = All::kDim;
  const int lane = threadIdx.x % 32;
  const bool counted = lane < kEntries && counts(lane);
  const uint32_t all_counted = __ballot_sync(0xffffffffU, counted);
  if (all_counted == 0) {
    wait();
    return;
  }
  float weights[kEntries / 8][2][2];
#pragma unroll
  for (int n = 0; n < kEntries / 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int entry = 8 * n + 2 * (lane % 4) + i;
        weights[n][half][i] =
            half < All::kHalves && (all_counted >> entry & 1) != 0 ? logit(entry, lane / 4 + 8 * half) : kMinusInfinity;
      }
    }
  }
  wait();
  if (type != DataType::kBF16) {
#pragma unroll 1
    for (int entry = 0; entry < kEntries; ++entry) {
      if (type == DataType::kE4M3) {
        widen_values<DataType::kE4M3, kDim>(values + entry * Tile::kRowBytes);
      } else {
        widen_values<DataType::kE5M2, kDim>(values + entry * Tile::kRowBytes);
      }
    }
  }
  // What does not count may be anything, and 0 * NaN would be NaN.
  if (lane < kEntries && !counted) {
#pragma unroll
    for (int piece = 0; piece < kDim / 8; ++piece) *reinterpret_cast<uint4*>(values + lane * Tile::kRowBytes + 16 * piece) = {};
  }
  __syncwarp();
  all.add(shared_address(values), weights);
}

}  // namespace sluice::cuda::decode
