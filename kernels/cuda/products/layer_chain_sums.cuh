#pragma once

#include "kernels/cuda/products/layer_chain_block.cuh"

/// How the warps of a block multiply, and what becomes of their sums. The rows of the weight are the 16 rows of a tensor core
/// product, those of x its 8 columns, so that few rows waste little. A thread's four sums are then outputs lane / 4 (two) and
/// lane / 4 + 8 (two) of the tile, each for rows 2 * (lane % 4) and the next.
namespace sluice::cuda::layer_chain {

/// The row of x that a thread's sum `index` is of, and its output in the tile.
__device__ __forceinline__ int row_of(int lane, int index) { return 2 * (lane % 4) + index % 2; }
__device__ __forceinline__ int output_of(int lane, int index) { return lane / 4 + index / 2 * 8; }

__device__ __forceinline__ uint4 load_vector(uint32_t address) {
  uint4 four;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
               : "r"(address)
               : "memory");
  return four;
}

/// The inputs of a stage of all rows: a lane has eight neighbours of every 32, which products take in any order as long as both
/// sides have the same.
struct Inputs {
  static constexpr int kSpans = kStageInputs / 32;
  uint4 at[kSpans];

  __device__ __forceinline__ void load(const Arguments& a, const Product& product, int stage) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = lane / 4;
    const __nv_bfloat16* from = product.x + row * product.x_stride + stage * kStageInputs + lane % 4 * 8;
#pragma unroll
    for (int span = 0; span < kSpans; ++span) {
      // Past L1: other blocks of this kernel write what the next product takes.
      const bool is_there = row < a.rows && stage * kStageInputs + span * 32 < product.inputs;
      at[span] = is_there ? __ldcg(reinterpret_cast<const uint4*>(from + span * 32)) : uint4{};
    }
  }
};

/// Adds a stage's part of the tile's sums, half to each: products that follow each other do not wait for each other.
__device__ __forceinline__ void multiply_stage(float (&sums)[2][4], uint32_t weight, const Inputs& x) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = lane / 4;
#pragma unroll
  for (int span = 0; span < Inputs::kSpans; ++span) {
    // 64 inputs of 16 rows, then the next 64; eight inputs have a place that depends on the row (the 128-byte swizzle).
    const uint32_t at = weight + span / 2 * (kTile * 128) + row * 128 + ((lane % 4 + span % 2 * 4) ^ row) * 16;
    const uint4 low = load_vector(at);
    const uint4 high = load_vector(at + 8 * 128);
    const uint4& b = x.at[span];
    multiply_bf16(sums[0], low.x, high.x, low.y, high.y, b.x, b.y);
    multiply_bf16(sums[1], low.z, high.z, low.w, high.w, b.z, b.w);
  }
}

/// True, once sums are there. Loads from shared memory may still be under way when a barrier is told that they have been asked
/// for; it must not be before they have arrived, since what comes next takes their place.
__device__ __forceinline__ bool are_there(const float (&sums)[4]) {
  constexpr uint32_t kNever = 0x7fffdead;  // arithmetic gives no such NaN
  return __float_as_uint(sums[0]) != kNever;
}

/// A warp that multiplies: of all stages of the block's tiles, in their order, every kWarps-th.
class Multiplier {
 public:
  __device__ Multiplier(const Arguments& a, const Places& places)
      : a_(a),
        places_(places),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        stage_(warp_) {}

  __device__ void run() {
    int tiles_before = 0;
    for (int index = 0; index < a_.count; ++index) {
      const Product& product = a_.products[index];
      wait_together(places_.rows_here(index), 0);
      loaded_ = -1;
      for (int tile = static_cast<int>(blockIdx.x); tile < product.tiles; tile += static_cast<int>(gridDim.x)) {
        do_tile(product, tiles_before % kFinishers, tiles_before / kFinishers % 2);
        ++tiles_before;
      }
    }
  }

 private:
  __device__ __forceinline__ void do_tile(const Product& product, int finisher, uint32_t parity) {
    const int first = (warp_ - stages_before_) & (kWarps - 1);  // of the tile's stages, that are this warp's
    float sums[2][4] = {};
    for (int stage = first; stage < product.stages; stage += kWarps) {
      if (stage != loaded_) x_.load(a_, product, stage);
      loaded_ = stage;
      wait_together(places_.stage_filled(stage_), stage_parity_);
      multiply_stage(sums, places_.stage(stage_), x_);
      if (lane_ == 0 && are_there(sums[0]) && are_there(sums[1])) barrier_arrive(places_.stage_emptied(stage_));
      next_stage();
    }
    wait_together(places_.parts_taken(finisher), parity ^ 1);
    if (first < product.stages) {
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(places_.part(finisher, first) + lane_ * 16),
                   "f"(sums[0][0] + sums[1][0]), "f"(sums[0][1] + sums[1][1]), "f"(sums[0][2] + sums[1][2]),
                   "f"(sums[0][3] + sums[1][3])
                   : "memory");
    }
    __syncwarp();
    if (lane_ == 0) barrier_arrive(places_.parts_here(finisher));
    stages_before_ += product.stages;
  }

  __device__ __forceinline__ void next_stage() {
    stage_ += kWarps;
    if (stage_ == places_.stages + warp_) {
      stage_ = warp_;
      stage_parity_ ^= 1;
    }
  }

  const Arguments& a_;
  const Places& places_;
  int warp_, lane_;
  int stage_;  // the next of this warp, in the ring
  uint32_t stage_parity_ = 0;
  int stages_before_ = 0;  // of the block
  Inputs x_;
  int loaded_ = -1;  // the stage whose inputs are in x_
};

/// What a tile's sums are added to, fetched before they are there.
struct ResidualTile {
  float values[4];
  float gains[2];

  __device__ __forceinline__ void load(const Arguments& a, const Product& product, int tile) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int output = kTile * tile + output_of(lane, i);
      const int row = row_of(lane, i);
      values[i] = row < a.rows ? __ldcg(a.residual + row * a.residual_stride + output) : 0;
      if (i % 2 == 0) gains[i / 2] = product.gain[output];
    }
  }
};

/// The sums of a tile, those of all warps added in the order of the inputs.
__device__ __forceinline__ void take(float (&sums)[4], const Places& places, int finisher, int parts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = 0;
#pragma unroll
  for (int part = 0; part < kWarps; ++part) {
    if (part >= parts) break;
    const uint4 four = load_vector(places.part(finisher, part) + lane * 16);
    sums[0] += __uint_as_float(four.x);
    sums[1] += __uint_as_float(four.y);
    sums[2] += __uint_as_float(four.z);
    sums[3] += __uint_as_float(four.w);
  }
  // Each lane knows of its own loads.
  if (__all_sync(0xffffffffU, are_there(sums)) && lane == 0) barrier_arrive(places.parts_taken(finisher));
}

__device__ __forceinline__ void multiply_by_factors(float (&sums)[4], const Places& places) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float factors[2];
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(factors[0]), "=f"(factors[1])
               : "r"(places.factors + row_of(lane, 0) * 4)
               : "memory");
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] *= factors[i % 2];
}

/// Stores 8 outputs from `column` on, of which a thread has one for two neighbouring rows.
__device__ __forceinline__ void store_eight(const Arguments& a, const Product& product, int column, float even, float odd) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t pair = transpose(pack(even, odd));
  const int row = lane / 4;
  if (row < a.rows) *reinterpret_cast<uint32_t*>(product.out + row * product.out_stride + column + 2 * (lane % 4)) = pair;
}

__device__ __forceinline__ float silu(float value) { return value / (1.0f + expf(-value)); }

/// Adds the sums to the residual, and stores the squares of the tile and what the next product multiplies.
__device__ __forceinline__ void add_norm(float (&sums)[4], const Arguments& a, const Product& product, int tile,
                                         const ResidualTile& residual) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = row_of(lane, i);
    sums[i] += residual.values[i];
    if (row < a.rows) a.residual[row * a.residual_stride + kTile * tile + output_of(lane, i)] = sums[i];
  }
#pragma unroll
  for (int odd = 0; odd < 2; ++odd) {
    float squares = sums[odd] * sums[odd] + sums[2 + odd] * sums[2 + odd];
#pragma unroll
    for (int mask = 16; mask >= 4; mask /= 2) squares += __shfl_xor_sync(0xffffffffU, squares, mask);
    const int row = row_of(lane, odd);
    if (lane < 4 && row < a.rows) a.squares[row * a.square_parts + tile] = squares;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float gain = residual.gains[half];
    store_eight(a, product, kTile * tile + 8 * half, sums[2 * half] * gain, sums[2 * half + 1] * gain);
  }
}

__device__ __forceinline__ void finish(float (&sums)[4], const Arguments& a, const Product& product, int tile,
                                       const ResidualTile& residual) {
  switch (product.finish) {
    case Finish::kStore:
      store_eight(a, product, kTile * tile, sums[0], sums[1]);
      store_eight(a, product, kTile * tile + 8, sums[2], sums[3]);
      break;
    case Finish::kGate:
      store_eight(a, product, kTile / 2 * tile, silu(sums[0]) * sums[2], silu(sums[1]) * sums[3]);
      break;
    case Finish::kAddNorm:
      add_norm(sums, a, product, tile, residual);
  }
}

/// A warp that finishes every kFinishers-th of the block's tiles, and tells all blocks.
__device__ inline void finish_tiles(const Arguments& a, const Places& places, int finisher) {
  int tiles_before = 0;
  for (int index = 0; index < a.count; ++index) {
    const Product& product = a.products[index];
    wait_together(places.rows_here(index), 0);
    for (int tile = static_cast<int>(blockIdx.x); tile < product.tiles; tile += static_cast<int>(gridDim.x)) {
      const int before = tiles_before++;
      if (before % kFinishers != finisher) continue;
      ResidualTile residual;
      if (product.finish == Finish::kAddNorm) residual.load(a, product, tile);
      float sums[4];
      wait_together(places.parts_here(finisher), before / kFinishers % 2);
      take(sums, places, finisher, min(product.stages, kWarps));
      if (product.normed) {
        wait_together(places.factors_here(index), 0);
        multiply_by_factors(sums, places);
      }
      finish(sums, a, product, tile, residual);
      __syncwarp();
      if (index + 1 < a.count && threadIdx.x % 32 == 0) {
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(a.counters + index) : "memory");
      }
    }
  }
}

}  // namespace sluice::cuda::layer_chain
