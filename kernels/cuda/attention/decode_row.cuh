#pragma once

#include "kernels/cuda/attention/decode_numbers.cuh"
#include "kernels/cuda/attention/decode_tile.cuh"
#include "kernels/cuda/primitives/mbarrier.cuh"

namespace sluice::cuda::decode {

/// What a warp has of a row (up to 16 heads of Q that share K and V): its softmax attention over the tiles that it was given. A
/// thread holds heads lane / 4 and lane / 4 + 8 (`Wide`: more than 8 heads; else the latter are none).
///
/// Products take channels and tokens in any order, as long as both operands have the same. With bf16, of every 16 channels a
/// thread has 2 * (lane % 4) and the one behind it, and both 8 further on. With 8-bit numbers it has four channels side by side,
/// since that is what loading a matrix of 16-bit numbers gives.
template <DataType Type, int Dim, int Box, bool Wide>
class WarpRow {
 public:
  using S = Shape<Type, Dim, Box>;
  static constexpr bool kBf16 = Type == DataType::kBF16;
  static constexpr int kHalves = Wide ? 2 : 1;
  static constexpr int kDim = Dim;
  // The largest power is 2^this: float16 holds none below 2^-25, and many tokens of less weight than that are not nothing.
  static constexpr float kHeadroom = kBf16 ? 0 : 15;

  /// q: bf16 [group, Dim]; scale: of q . k, in base 2.
  __device__ __forceinline__ WarpRow(const uint16_t* q, int group, float scale) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int head = lane / 4 + 8 * half;
      const bool exists = head < group;
      q += half * 8 * Dim;
      load_query(q + lane / 4 * Dim, exists, half);
      scale_[half] = scale;
      if constexpr (!kBf16) narrow_query(half);
    }
  }

  /// Attends to a tile of which `left` tokens count.
  __device__ __forceinline__ void attend(uint8_t* tile, int left) {
    attend_tile(
        tile, left, [left](int token) { return token < left; }, [](const float(&)[2][4]) {});
  }
  /// The same where those of the `left` tokens count whose bits are set; what the others of them hold is finite.
  __device__ __forceinline__ void attend_masked(uint8_t* tile, int left, uint32_t mask) {
    attend_tile(
        tile, left, [mask, left](int token) { return token < left && (mask >> token & 1) != 0; }, [](const float(&)[2][4]) {});
  }

  /// What `attend_kept` keeps of a tile: of head h and token t at numbers[h * stride + t]. Null: nothing.
  struct TileLogits {
    float* numbers;
    int64_t stride;
    int tokens = kTileTokens;  // of which are kept, 8 or 16
  };
  /// The same, and keeps what the 16 tokens score: -inf of those that do not count.
  __device__ __forceinline__ void attend_kept(uint8_t* tile, int left, uint32_t mask, int group, const TileLogits& logits) {
    const auto counts = [mask, left](int token) { return token < left && (mask >> token & 1) != 0; };
    attend_tile(tile, left, counts, [&](const float(&scores)[2][4]) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const int head = lane / 4 + 8 * half;
        if (head >= group || logits.numbers == nullptr) continue;
        float* const to = logits.numbers + head * logits.stride + 2 * (lane % 4);
        *reinterpret_cast<float2*>(to) = {scores[0][2 * half], scores[0][2 * half + 1]};
        if (logits.tokens > 8) *reinterpret_cast<float2*>(to + 8) = {scores[1][2 * half], scores[1][2 * half + 1]};
      }
    });
  }
  /// Adds numbers, by half, to what this warp has kept.
  static __device__ __forceinline__ void shift_kept(const float (&shifts)[2], int group, const TileLogits& logits) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int head = lane / 4 + 8 * half;
      if (head >= group) continue;
      auto* const to = reinterpret_cast<float2*>(logits.numbers + head * logits.stride + 2 * (lane % 4));
      to[0] = {to[0].x + shifts[half], to[0].y + shifts[half]};
      if (logits.tokens > 8) to[4] = {to[4].x + shifts[half], to[4].y + shifts[half]};
    }
  }

  /// What powers are taken beside: the largest score, less the headroom.
  __device__ __forceinline__ float maximum(int half) const { return maximum_[half]; }
  /// Of the powers of all tokens. For all threads of the warp.
  __device__ __forceinline__ float sum(int half) const { return quad_sum(sum_[half]); }

  /// Writes this thread's part of the output of a head: the sum of V weighted by the powers.
  __device__ __forceinline__ void store(int half, float* target) const {
    const int quad = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < Dim / 8; n += kBf16 ? 1 : 2) {
      const float first = half == 0 ? output_[n][0] : output_[n][2];
      const float second = half == 0 ? output_[n][1] : output_[n][3];
      if constexpr (kBf16) {
        *reinterpret_cast<float2*>(target + 8 * n + 2 * quad) = {first, second};
      } else {
        const float odd_first = half == 0 ? output_[n + 1][0] : output_[n + 1][2];
        const float odd_second = half == 0 ? output_[n + 1][1] : output_[n + 1][3];
        *reinterpret_cast<float4*>(target + 8 * n + 4 * quad) = {first, odd_first, second, odd_second};
      }
    }
  }

  /// Of 16 channels, 8 * n ones before them, the four that a thread has of a head with bf16: 2 * (lane % 4) and the one behind
  /// it, and both 8 further on. For all threads of the warp.
  struct FourChannels {
    float2 low, high;
  };
  __device__ __forceinline__ FourChannels channels(int half, int n) const {
    const float2 even = half == 0 ? float2{output_[n][0], output_[n][1]} : float2{output_[n][2], output_[n][3]};
    const float2 odd = half == 0 ? float2{output_[n + 1][0], output_[n + 1][1]} : float2{output_[n + 1][2], output_[n + 1][3]};
    if constexpr (kBf16) return {even, odd};
    // Side by side lie even.x, odd.x, even.y and odd.y of thread 0 of the four, then those of thread 1, and so on.
    const int quad = static_cast<int>(threadIdx.x) % 4;
    const int from = (static_cast<int>(threadIdx.x) % 32 & ~3) + quad / 2;
    FourChannels four;
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      const float2 first = {__shfl_sync(0xffffffffU, even.x, from + 2 * high), __shfl_sync(0xffffffffU, odd.x, from + 2 * high)};
      const float2 second = {__shfl_sync(0xffffffffU, even.y, from + 2 * high), __shfl_sync(0xffffffffU, odd.y, from + 2 * high)};
      (high == 0 ? four.low : four.high) = quad % 2 == 0 ? first : second;
    }
    return four;
  }
  /// Forgets all tiles.
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int n = 0; n < Dim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) output_[n][i] = 0;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      maximum_[half] = kMinusInfinity;
      sum_[half] = 0;
    }
  }

 private:
  /// Of a tile whose `left` tokens are there, those count that `counts`; `keep` is given what all score, -inf of the others.
  template <class Counts, class Keep>
  __device__ __forceinline__ void attend_tile(uint8_t* tile, int left, const Counts& counts, const Keep& keep) {
    const uint32_t address = shared_address(tile);
    float scores[2][4] = {};
    multiply_keys(address, scores);
    if (left < kTileTokens) clear_values(tile, left);
    uint32_t weights[4];
    soften(scores, counts, weights);
    keep(scores);
    multiply_values(address, weights);
  }

  __device__ __forceinline__ void load_query(const uint16_t* head, bool exists, int half) {
    const int quad = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < Dim / 16; ++k) {
      if constexpr (kBf16) {
        const auto* pairs = reinterpret_cast<const uint32_t*>(head + 16 * k + 2 * quad);
        query_[k][half] = exists ? pairs[0] : 0;
        query_[k][2 + half] = exists ? pairs[4] : 0;
      } else {
        const uint2 four = exists ? *reinterpret_cast<const uint2*>(head + 16 * k + 4 * quad) : uint2{0, 0};
        query_[k][half] = four.x;
        query_[k][2 + half] = four.y;
      }
    }
  }

  /// Q of a head becomes float16.
  __device__ __forceinline__ void narrow_query(int half) {
    float largest = 0;
#pragma unroll
    for (int k = 0; k < Dim / 16; ++k) {
#pragma unroll
      for (int i = half; i < 4; i += 2) {
        largest = fmaxf(largest, fmaxf(fabsf(low_bf16(query_[k][i])), fabsf(high_bf16(query_[k][i]))));
      }
    }
    const HalfScale scale(quad_max(largest));
    scale_[half] *= scale.inverse;
#pragma unroll
    for (int k = 0; k < Dim / 16; ++k) {
#pragma unroll
      for (int i = half; i < 4; i += 2) {
        query_[k][i] = pack_half(low_bf16(query_[k][i]) * scale.factor, high_bf16(query_[k][i]) * scale.factor);
      }
    }
  }

  /// scores[16 heads, tokens 8 * n ..] += Q K^T.
  __device__ __forceinline__ void multiply_keys(uint32_t tile, float (&scores)[2][4]) {
    const int lane = threadIdx.x % 32;
    const int token = lane % 8 + lane / 16 * 8;
    if constexpr (kBf16) {
#pragma unroll
      for (int k = 0; k < Dim / 16; ++k) {
        uint32_t keys[4];
        load_matrices(tile + S::offset(0, token, 2 * k + lane / 8 % 2), keys);
        multiply<true>(scores[0], query_[k], keys[0], keys[1]);
        multiply<true>(scores[1], query_[k], keys[2], keys[3]);
      }
    } else {
#pragma unroll
      for (int k = 0; k < Dim / 16; k += 2) {
        uint32_t keys[4];
        load_matrices(tile + S::offset(0, token, k + lane / 8 % 2), keys);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Pairs pairs = widen<Type>(keys[i]);
          multiply<false>(scores[i / 2], query_[k + i % 2], pairs.first, pairs.second);
        }
      }
    }
  }

  /// What lies past the last token may be anything, and 0 * NaN would be NaN.
  __device__ __forceinline__ void clear_values(uint8_t* tile, int left) {
    constexpr int kChunks = Dim / S::kChunk;
    for (int i = threadIdx.x % 32; i < (kTileTokens - left) * kChunks; i += 32) {
      *reinterpret_cast<uint4*>(tile + S::offset(1, left + i / kChunks, i % kChunks)) = {0, 0, 0, 0};
    }
    __syncwarp();
  }

  /// Scores become powers, beside the largest score so far, which rescales the output where it grew. Tokens count that `counts`.
  template <class Counts>
  __device__ __forceinline__ void soften(float (&scores)[2][4], const Counts& counts, uint32_t (&weights)[4]) {
    const int quad = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half == kHalves) {
        weights[half] = weights[half + 2] = 0;
        break;
      }
      float largest = kMinusInfinity;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[n][2 * half + i];
          score = counts(8 * n + 2 * quad + i) ? score * scale_[half] : kMinusInfinity;
          largest = fmaxf(largest, score);
        }
      }
      const float higher = fmaxf(maximum_[half], quad_max(largest) - kHeadroom);
      // Where every score so far is -inf, its powers are to vanish rather than to be NaN.
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
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float p0 = power(scores[n][2 * half] - shift);
        const float p1 = power(scores[n][2 * half + 1] - shift);
        sum_[half] += p0 + p1;
        weights[2 * n + half] = kBf16 ? pack(p0, p1) : pack_half(p0, p1);
      }
    }
  }

  /// output += weights V.
  __device__ __forceinline__ void multiply_values(uint32_t tile, const uint32_t (&weights)[4]) {
    const int lane = threadIdx.x % 32;
    const int token = lane % 8 + lane / 8 % 2 * 8;
#pragma unroll
    for (int chunk = 0; chunk < Dim / S::kChunk; chunk += 2) {
      uint32_t values[4];
      load_transposed(tile + S::offset(1, token, chunk + lane / 16), values);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if constexpr (kBf16) {
          multiply<true>(output_[chunk + i], weights, values[2 * i], values[2 * i + 1]);
        } else {
          // A 16-bit number of the matrix is two channels: those at even and those at odd places are a product each.
          const Pairs low = widen_alternate<Type>(values[2 * i]);
          const Pairs high = widen_alternate<Type>(values[2 * i + 1]);
          multiply<false>(output_[2 * (chunk + i)], weights, low.first, high.first);
          multiply<false>(output_[2 * (chunk + i) + 1], weights, low.second, high.second);
        }
      }
    }
  }

  uint32_t query_[Dim / 16][4] = {};
  float scale_[2];
  float output_[Dim / 8][4] = {};
  float maximum_[2] = {kMinusInfinity, kMinusInfinity};
  float sum_[2] = {0, 0};
};

}  // namespace sluice::cuda::decode
