#pragma once

#include "kernels/cuda/attention/prefill_copies.cuh"
#include "kernels/cuda/attention/prefill_sights.cuh"
#include "kernels/cuda/primitives/wgmma.h"

/// The rows of a warpgroup: scores, softmax and output in registers.
namespace sluice::cuda::prefill {

/// Of every eight tokens of a tile a thread has two, side by side: this is the first.
__device__ __forceinline__ int own_token() { return 2 * (static_cast<int>(threadIdx.x) % 4); }

/// Which of its tokens (of the eight, the first or the second) vanish from a thread's two rows: none, ...
struct SeesAll {
  static constexpr bool kMayHideAll = false;
  __device__ __forceinline__ bool hides(int /*half*/, int /*eight*/, int /*second*/) const { return false; }
  __device__ __forceinline__ SeesAll taken() const { return {}; }
};
/// ... those from a limit on, ...
struct SeesUpTo {
  static constexpr bool kMayHideAll = false;
  int left[2];

  __device__ __forceinline__ SeesUpTo(const int (&limits)[2], int first_token)
      : left{limits[0] - first_token, limits[1] - first_token} {}
  __device__ __forceinline__ bool hides(int half, int eight, int second) const {
    return 8 * eight + second + own_token() >= left[half];
  }
};
/// ... or those whose bits are not set. The bits of all threads' tokens are read first, and taken once they are needed, so that
/// nobody waits for them in between.
template <int Tokens>
struct SeesMasked {
  static constexpr bool kMayHideAll = true;
  uint32_t words[2][Tokens / 32];

  /// Of a tile of a list. `row` is the thread's first among the work's, and `seen` where the list has its bits.
  template <class AnyArguments>
  __device__ __forceinline__ SeesMasked(const AnyArguments& a, const Work& work, int row, const uint32_t* seen, Entry entry) {
    if (entry.seen() != Entry::kNoBits) {
#pragma unroll
      for (int half = 0; half < 2; ++half) take(half, seen + (entry.seen() * kTileRows + 8 * half) * (Tokens / 32));
      return;
    }
    if (!entry.is_partial()) {
#pragma unroll
      for (auto& of_half : words) {
#pragma unroll
        for (uint32_t& word : of_half) word = ~0U;
      }
      return;
    }
    OwnSights<2> own;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      own.take(a, work, half, row + 8 * half);
#pragma unroll
      for (int i = 0; i < Tokens / 32; ++i) words[half][i] = own.word(half, entry.tile() * (Tokens / 32) + i);
    }
  }
  /// With a thread's own tokens first.
  __device__ __forceinline__ SeesMasked taken() const {
    SeesMasked own = *this;
#pragma unroll
    for (auto& of_half : own.words) {
#pragma unroll
      for (uint32_t& word : of_half) word >>= own_token();
    }
    return own;
  }
  __device__ __forceinline__ bool hides(int half, int eight, int second) const {
    return (words[half][eight / 4] & 1U << (eight % 4 * 8 + second)) == 0;
  }

 private:
  __device__ __forceinline__ void take(int half, const uint32_t* from) {
    static_assert(Tokens == 64 || Tokens == 128);
    if constexpr (Tokens == 128) {
      const uint4 four = __ldg(reinterpret_cast<const uint4*>(from));
      words[half][0] = four.x;
      words[half][1] = four.y;
      words[half][2] = four.z;
      words[half][3] = four.w;
    } else {
      const uint2 two = __ldg(reinterpret_cast<const uint2*>(from));
      words[half][0] = two.x;
      words[half][1] = two.y;
    }
  }
};

/// The softmax attention of a warpgroup's rows; a thread holds two of them (eight apart), of every eight columns two.
template <int Dim>
class Rows {
 public:
  using S = Shape<Dim>;
  static constexpr int kTokens = S::kTokens;

  /// scores = Q K^T, asked for.
  __device__ __forceinline__ void ask_scores(uint32_t query, uint32_t keys) {
    products_begin();
#pragma unroll
    for (int k = 0; k < Dim / 16; ++k) {
      const uint64_t q = matrix(query + k / 4 * S::kQueryPanel + k % 4 * 32, 16, 1024);
      const uint64_t b = matrix(keys + k / 4 * 1024 + k % 4 * 32, 16, S::kBoxBytes);
      if (k == 0) {
        multiply_keys<false>(scores_, q, b);
      } else {
        multiply_keys<true>(scores_, q, b);
      }
    }
    products_commit();
  }

  /// output += weights V, asked for.
  __device__ __forceinline__ void ask_output(uint32_t values) {
    products_begin();
#pragma unroll
    for (int k = 0; k < kTokens / 16; ++k) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        multiply_values(output_[part], weights_ + 4 * k, matrix(values + part * 2048 + 2 * k * S::kBoxBytes, 1024, S::kBoxBytes));
      }
    }
    products_commit();
  }

  __device__ __forceinline__ void pin_scores() { pin(scores_); }
  __device__ __forceinline__ void pin_output() {
#pragma unroll
    for (int part = 0; part < kParts; ++part) pin(output_[part]);
    pin(weights_);
  }

  /// Scores become powers; tokens vanish that `sight` hides.
  template <class Sight>
  __device__ __forceinline__ void soften(float scale, const Sight& sight) {
    float highest[2] = {maximum_[0], maximum_[1]};
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) {
      const int half = i / 2 % 2;
      if (sight.hides(half, i / 4, i % 2)) scores_[i] = -INFINITY;
      highest[half] = fmaxf(highest[half], scores_[i]);
    }
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      highest[half] = quad_max(highest[half]);
      // Where a row has seen nothing so far, its powers are to vanish rather than to be NaN.
      const bool none = Sight::kMayHideAll && highest[half] == -INFINITY;
      rescale_[half] = none ? 0 : power((maximum_[half] - highest[half]) * scale);
      maximum_[half] = highest[half];
      shift[half] = none ? 0 : highest[half] * scale;
      sum_[half] *= rescale_[half];
    }
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) {
      const int half = i / 2 % 2;
      scores_[i] = power(__fmaf_rn(scores_[i], scale, -shift[half]));
      sum_[half] += scores_[i];
    }
  }

  __device__ __forceinline__ void rescale_output() {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < S::kOutputChannels / 2; ++i) output_[part][i] *= rescale_[i / 2 % 2];
    }
  }

  __device__ __forceinline__ void take_weights() {
#pragma unroll
    for (int i = 0; i < kTokens / 4; ++i) weights_[i] = pack(scores_[2 * i], scores_[2 * i + 1]);
  }

  /// Writes row `half` of this thread's in bf16. All threads of a warp call this; `target` is null for rows that are none.
  /// `zeros_for_none`: a row may have seen nothing.
  __device__ __forceinline__ void store(int half, __nv_bfloat16* target, bool zeros_for_none) {
    const float sum = quad_sum(sum_[half]);
    const float inverse = zeros_for_none && sum == 0 ? 0 : 1 / sum;
    write(half, target, [&](int /*eight*/, float2 pair) { return make_float2(pair.x * inverse, pair.y * inverse); });
  }

  /// The base-2 logarithm of the sum of a row's powers: -inf if it has seen nothing.
  __device__ __forceinline__ float log_of_sum(int half, float scale) const {
    const float sum = quad_sum(sum_[half]);
    return sum == 0 ? -INFINITY : __fmaf_rn(maximum_[half], scale, log2f(sum));
  }

  /// What a thread's row made of other tokens, as it is in memory: of every eight channels the two that are the thread's.
  struct Others {
    __nv_bfloat162 pairs[Dim / 8];

    __device__ __forceinline__ explicit Others(const __nv_bfloat16* from) {
#pragma unroll
      for (int chunk = 0; chunk < Dim / 8; ++chunk) {
        pairs[chunk] =
            from == nullptr ? __nv_bfloat162{} : *reinterpret_cast<const __nv_bfloat162*>(from + 8 * chunk + own_token());
      }
    }
  };

  /// Writes what a row makes of its tokens and of others, of whose powers `log` is the logarithm of the sum. One of them sees
  /// something.
  __device__ __forceinline__ void store_with(int half, __nv_bfloat16* target, const Others& others, float log, float scale) {
    const float sum = quad_sum(sum_[half]);
    const float own_log = log_of_sum(half, scale);
    const float highest = fmaxf(own_log, log);
    const float weight = power(own_log - highest);
    const float other_weight = power(log - highest);
    const float by = sum == 0 ? 0 : weight / ((weight + other_weight) * sum);
    const float other_by = other_weight / (weight + other_weight);
    write(half, target, [&](int eight, float2 pair) {
      const float2 other = __bfloat1622float2(others.pairs[eight]);
      return make_float2(pair.x * by + other.x * other_by, pair.y * by + other.y * other_by);
    });
  }

 private:
  static constexpr int kParts = Dim / S::kOutputChannels;

  /// Writes row `half` of this thread's, with the three other threads that hold it: they exchange their pairs of channels so that
  /// each has eight side by side. Of a pair of channels among eight `finish` (number of the eight, pair) gives what is written.
  template <class Finish>
  __device__ __forceinline__ void write(int half, __nv_bfloat16* target, Finish finish) {
    const int lane = threadIdx.x % 4;
#pragma unroll
    for (int chunk = 0; chunk < Dim / 8; chunk += 4) {
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = output_[(chunk + i) / 16] + 4 * ((chunk + i) % 16) + 2 * half;
        const float2 finished = finish(chunk + i, make_float2(pair[0], pair[1]));
        pairs[i] = pack(finished.x, finished.y);
      }
      // Transposes four by four: first the halves, then within them.
      exchange(pairs[0], pairs[2], 2, lane & 2);
      exchange(pairs[1], pairs[3], 2, lane & 2);
      exchange(pairs[0], pairs[1], 1, lane & 1);
      exchange(pairs[2], pairs[3], 1, lane & 1);
      if (target != nullptr) {
        *reinterpret_cast<uint4*>(target + (chunk + lane) * 8) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      }
    }
  }

  /// Thread `other` away takes b of the lower one and gives it a.
  static __device__ __forceinline__ void exchange(uint32_t& a, uint32_t& b, int other, bool upper) {
    const uint32_t taken = __shfl_xor_sync(0xffffffffU, upper ? a : b, other);
    if (upper) {
      a = taken;
    } else {
      b = taken;
    }
  }

  float scores_[kTokens / 2];
  uint32_t weights_[kTokens / 4];  // those of 16 tokens are operand A of a product
  float output_[kParts][S::kOutputChannels / 2] = {};
  float maximum_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {0, 0};
  float rescale_[2];
};

/// Clears a V tile from token `left` on: what lies past the last token may be anything, and 0 * NaN would be NaN. Both
/// warpgroups do so.
template <int Dim>
__device__ __forceinline__ void clear_values(uint32_t values, int left) {
  using S = Shape<Dim>;
  constexpr int kChunks = Dim / 8;
  for (int i = threadIdx.x % 128; i < (S::kTokens - left) * kChunks; i += 128) {
    const int token = left + i / kChunks;
    const int chunk = i % kChunks;
    const uint32_t address = values + token / kBoxTokens * S::kBoxBytes + chunk / 8 * 1024 + token % 8 * 128 + chunk % 8 * 16;
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(address), "r"(0) : "memory");
  }
}

}  // namespace sluice::cuda::prefill
