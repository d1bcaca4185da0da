#pragma once

#include "kernels/cuda/primitives/warp.cuh"
#include "kernels/cuda/products/decode_matmul_block.cuh"

/// What becomes of a product's sums: classes that the warps which multiply have one of each. `take` gets the sums of 16 outputs
/// from `output` on; `finish`, which all of these warps call, comes behind the last of them. For n = 0, 8, .. a thread's sums are
/// those of outputs lane / 4 and lane / 4 + 8, each for rows n + 2 * (lane % 4) and the next.
namespace sluice::cuda::decode_matmul {

/// All warps that multiply meet.
__device__ __forceinline__ void meet(const Arguments& a) { asm volatile("bar.sync 1, %0;" ::"r"(32 * a.warps) : "memory"); }

/// bf16 rows of `out`, 8 at a time: lanes exchange sums, so that each stores two neighbours of a row.
class NarrowRows {
 public:
  __device__ __forceinline__ NarrowRows(const Arguments& a, int output)
      : row_(static_cast<int>(threadIdx.x) % 32 / 4),
        rows_(a.rows),
        step_(8 * a.out_stride),
        to_(static_cast<__nv_bfloat16*>(a.out) + row_ * a.out_stride + output + 2 * (static_cast<int>(threadIdx.x) % 4)) {}

  /// A thread's sums for two rows of an output, and of the one 8 further on.
  __device__ __forceinline__ void store(float first, float second, float high_first, float high_second) {
    const uint32_t low = transpose(pack(first, second));
    const uint32_t high = transpose(pack(high_first, high_second));
    if (row_ < rows_) {
      *reinterpret_cast<uint32_t*>(to_) = low;
      *reinterpret_cast<uint32_t*>(to_ + 8) = high;
    }
    next();
  }
  __device__ __forceinline__ void store(float first, float second) {
    const uint32_t pair = transpose(pack(first, second));
    if (row_ < rows_) *reinterpret_cast<uint32_t*>(to_) = pair;
    next();
  }

 private:
  __device__ __forceinline__ void next() {
    row_ += 8;
    to_ += step_;
  }

  int row_, rows_;
  int64_t step_;
  __nv_bfloat16* to_;
};

/// They are stored, as float32 or bf16.
template <int Rows>
class Stored {
 public:
  static constexpr bool kGated = false;
  static constexpr int kBlocks = 2;  // of a multiprocessor, that registers must do for

  __device__ Stored(const Arguments& a, const Places<Rows>& /*places*/) : a_(a) {}

  __device__ __forceinline__ void take(const float (&sums)[Rows / 2], int output) const {
    if (a_.narrow) {
      NarrowRows to(a_, output);
#pragma unroll
      for (int n = 0; n < Rows / 8; ++n) to.store(sums[4 * n], sums[4 * n + 1], sums[4 * n + 2], sums[4 * n + 3]);
      return;
    }
    const int lane = static_cast<int>(threadIdx.x) % 32;
    auto* to = static_cast<float*>(a_.out) + 2 * (lane % 4) * a_.out_stride + output + lane / 4;
#pragma unroll
    for (int n = 0; n < Rows / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (8 * n + 2 * (lane % 4) + i % 2 < a_.rows) to[i % 2 * a_.out_stride + i / 2 * 8] = sums[4 * n + i];
      }
      to += 8 * a_.out_stride;
    }
  }
  __device__ __forceinline__ void finish() const {}

 private:
  const Arguments& a_;
};

/// Of a warp's 16 outputs the first 8 are of gate, the others those of up that belong to them: silu(gate) * up is stored.
template <int Rows>
class Gated {
 public:
  static constexpr bool kGated = true;
  static constexpr int kBlocks = 2;

  __device__ Gated(const Arguments& a, const Places<Rows>& /*places*/) : a_(a) {}

  __device__ __forceinline__ void take(const float (&sums)[Rows / 2], int output) const {
    const auto gated = [](float gate, float up) { return up * __fdividef(gate, 1.0f + __expf(-gate)); };
    NarrowRows to(a_, output / 2);
#pragma unroll
    for (int n = 0; n < Rows / 8; ++n) to.store(gated(sums[4 * n], sums[4 * n + 2]), gated(sums[4 * n + 1], sums[4 * n + 3]));
  }
  __device__ __forceinline__ void finish() const {}

 private:
  const Arguments& a_;
};

/// Of each row the greatest is kept, as greedy sampling has it.
template <int Rows>
class Best {
 public:
  static constexpr bool kGated = false;
  static constexpr int kBlocks = 1;  // heads of large models take its memory anyway; others run in turns

  __device__ Best(const Arguments& a, const Places<Rows>& places) : a_(a), memory_(places.ring) {
#pragma unroll
    for (int i = 0; i < Rows / 4; ++i) {
      best_[i] = -INFINITY;
      ids_[i] = 0;
    }
  }

  __device__ __forceinline__ void take(const float (&sums)[Rows / 2], int output) {
    const int first = output + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int i = 0; i < Rows / 2; ++i) {  // of a row, outputs ascend
      const int slot = i / 4 * 2 + i % 2;
      if (sums[i] > best_[slot]) {
        best_[slot] = sums[i];
        ids_[slot] = first + i % 4 / 2 * 8;
      }
      if (!(sums[i] < INFINITY)) damaged_ |= 1U << slot;
    }
  }

  /// Rows' best of the block, by way of the ring, which nothing comes into any more: a stage has room for those of all warps.
  __device__ __forceinline__ void finish() {
    static_assert(4 * Rows * sizeof(sampling::BestToken) <= kBoxBytes);
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    meet(a_);
#pragma unroll
    for (int i = 0; i < Rows / 4; ++i) {
      sampling::BestToken found{sampling::place_of(best_[i], ids_[i]), damaged_ >> i & 1};
#pragma unroll
      for (int mask = 16; mask >= 4; mask /= 2) found.join_lane(mask);
      if (lane < 4) store(thread / 32, i / 2 * 8 + 2 * lane + i % 2, found);
    }
    meet(a_);
    if (thread == 0 && blockIdx.x == 0) a_.best->blocks = static_cast<int>(gridDim.x);
    if (thread >= Rows) return;
    sampling::BestToken found = load(0, thread);
    for (int warp = 1; warp < a_.warps; ++warp) found.join(load(warp, thread));
    a_.best->of_block(static_cast<int>(blockIdx.x))[thread] = found;
  }

 private:
  __device__ __forceinline__ uint32_t place(int warp, int row) const {
    return memory_ + (warp * Rows + row) * static_cast<int>(sizeof(sampling::BestToken));
  }
  __device__ __forceinline__ void store(int warp, int row, const sampling::BestToken& token) const {
    asm volatile("st.shared.v2.b64 [%0], {%1, %2};" ::"r"(place(warp, row)), "l"(token.place), "l"(token.damaged) : "memory");
  }
  __device__ __forceinline__ sampling::BestToken load(int warp, int row) const {
    sampling::BestToken token;
    asm volatile("ld.shared.v2.b64 {%0, %1}, [%2];" : "=l"(token.place), "=l"(token.damaged) : "r"(place(warp, row)) : "memory");
    return token;
  }

  const Arguments& a_;
  uint32_t memory_;
  float best_[Rows / 4];
  int ids_[Rows / 4];
  uint32_t damaged_ = 0;
};

}  // namespace sluice::cuda::decode_matmul
