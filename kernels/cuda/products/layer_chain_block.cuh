#pragma once

#include "kernels/cuda/attention/attention_device.cuh"
#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/primitives/ring.cuh"
#include "kernels/cuda/primitives/warp.cuh"

/// What a block of LayerChain is told, where its shared memory has what, and the two warps that do not multiply: one copies
/// weights, one waits for other blocks.
namespace sluice::cuda::layer_chain {

inline constexpr int kMostProducts = 4;
inline constexpr int kWarps = 8;      // that multiply
inline constexpr int kFinishers = 4;  // warps that finish tiles in turn
inline constexpr int kCopier = kWarps + kFinishers;
inline constexpr int kThreads = 32 * (kCopier + 2);  // a warp copies weights, the last one watches
inline constexpr int kRows = 8;                      // of x, at most
inline constexpr int kTile = 16;                     // outputs
inline constexpr int kStageInputs = 256;             // of a tile in a stage of the ring
inline constexpr int kStageBytes = kTile * kStageInputs * 2;

/// What becomes of a tile's sums.
enum class Finish {
  kStore,    // out = sums
  kGate,     // out = silu(gate) * up: a tile is 8 outputs of gate and the 8 of up that belong to them
  kAddNorm,  // residual += sums; out = residual * gain, and the squares of the residual
};

struct Product {
  const __nv_bfloat16* x;  // [rows, inputs]
  int64_t x_stride;
  __nv_bfloat16* out;
  int64_t out_stride;
  const float* gain;  // of kAddNorm
  Finish finish;
  bool normed;  // x lacks the factors of a norm, with which sums are multiplied
  int inputs;   // a multiple of 64
  int stages;   // of a tile
  int tiles;
};

struct Arguments {
  Product products[kMostProducts];
  int count;
  int rows;
  float* residual;  // [rows, hidden]
  int64_t residual_stride;
  float* squares;    // [rows, square_parts] the sum of squares of 16 numbers of the residual each
  int square_parts;  // hidden / 16
  float inverse_hidden;
  float epsilon;
  uint32_t* counters;  // [kMostProducts] tiles that are done, then blocks that wait no more
  int stages;          // of the ring, a multiple of kWarps
  int most_copies;     // that are under way at a time
  int early_copies;    // until the rows of the first product are there
};

struct Maps {
  CUtensorMap weights[kMostProducts];
};

/// Shared memory, by shared address: the ring, sums of the warps for each finisher, factors of the rows, barriers.
struct Places {
  static constexpr int kPartBytes = kTile * kRows * 4;

  uint32_t ring, parts, factors, barriers;
  int stages;

  __device__ Places(const Arguments& a, uint32_t raw) : stages(a.stages) {
    ring = (raw + 1023) / 1024 * 1024;
    parts = ring + stages * kStageBytes;
    factors = parts + kFinishers * kWarps * kPartBytes;
    barriers = factors + kRows * 4;
  }
  static constexpr int bytes(int stages) {
    return 1024 + stages * kStageBytes + kFinishers * kWarps * kPartBytes + kRows * 4 +
           (2 * stages + 2 * kFinishers + 2 * kMostProducts) * 8;
  }

  __device__ uint32_t stage(int index) const { return ring + index * kStageBytes; }
  __device__ uint32_t part(int finisher, int index) const { return parts + (finisher * kWarps + index) * kPartBytes; }
  __device__ uint32_t stage_filled(int index) const { return barriers + index * 16; }
  __device__ uint32_t stage_emptied(int index) const { return stage_filled(index) + 8; }
  /// All sums of a finisher's tile are there; they have been read.
  __device__ uint32_t parts_here(int finisher) const { return stage_filled(stages + finisher); }
  __device__ uint32_t parts_taken(int finisher) const { return parts_here(finisher) + 8; }
  /// Rows of x of a product, and their factors.
  __device__ uint32_t rows_here(int product) const { return stage_filled(stages + kFinishers + product); }
  __device__ uint32_t factors_here(int product) const { return rows_here(product) + 8; }
};

__device__ __forceinline__ void init_barriers(const Places& places) {
  for (int i = 0; i < places.stages; ++i) {
    barrier_init(places.stage_filled(i), 1);
    barrier_init(places.stage_emptied(i), 1);
  }
  for (int i = 0; i < kFinishers; ++i) {
    barrier_init(places.parts_here(i), kWarps);
    barrier_init(places.parts_taken(i), 1);
  }
  for (int i = 0; i < kMostProducts; ++i) {
    barrier_init(places.rows_here(i), 1);
    barrier_init(places.factors_here(i), 1);
  }
  publish_barriers();
}

/// What all lanes of a warp wait for, so that they go on together.
__device__ __forceinline__ void wait_together(uint32_t barrier, uint32_t parity) {
  barrier_wait(barrier, parity);
  __syncwarp();
}

/// One thread copies the block's tiles of all weights, the first of them while the kernel before still runs. The ring holds more
/// than what is under way, since whatever else is read from memory, by that kernel or by blocks that wait for it, queues behind
/// copies.
__device__ inline void copy_weights(const Maps& maps, const Arguments& a, const Places& places) {
  for (int product = 0; product < a.count; ++product) prefetch_map(&maps.weights[product]);
  Turn next;
  Turn oldest;  // copy under way
  int copies = 0;
  bool early = true;
  int most = a.early_copies;
  for (int product = 0; product < a.count; ++product) {
    const int stages = a.products[product].stages;
    for (int tile = static_cast<int>(blockIdx.x); tile < a.products[product].tiles; tile += static_cast<int>(gridDim.x)) {
#pragma unroll 2
      for (int stage = 0; stage < stages; ++stage) {
        barrier_wait(places.stage_emptied(next.index), next.parity ^ 1);
        if (early && barrier_is_over(places.rows_here(0), 0)) {
          early = false;
          most = a.most_copies;
        }
        if (copies >= most) {
          barrier_wait(places.stage_filled(oldest.index), oldest.parity);
          oldest.next(a.stages);
        } else {
          ++copies;
        }
        const uint32_t barrier = places.stage_filled(next.index);
        barrier_expect(barrier, kStageBytes);
        asm volatile(
            "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %3, %3, "
            "%4, %5}], [%2], %6;" ::"r"(places.stage(next.index)),
            "l"(&maps.weights[product]), "r"(barrier), "r"(0), "r"(stage * (kStageInputs / 64)), "r"(tile), "l"(kEvictFirst)
            : "memory");
        next.next(a.stages);
      }
    }
  }
}

/// Waits until all tiles of a product are done.
__device__ __forceinline__ void wait_for_tiles(const uint32_t* counter, uint32_t tiles) {
  uint32_t done = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(done) : "l"(counter) : "memory");
  } while (done < tiles);
}

/// The factors of the rows. Every row is added up in the same order, however many there are.
__device__ __forceinline__ void find_factors(const Arguments& a, const Places& places) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sums[kRows] = {};
  for (int part = lane; part < a.square_parts; part += 32) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      if (row < a.rows) sums[row] += __ldcg(a.squares + row * a.square_parts + part);
    }
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const float factor = 1.0f / sqrtf(warp_sum(sums[row]) * a.inverse_hidden + a.epsilon);
    if (lane == 0) asm volatile("st.shared.f32 [%0], %1;" ::"r"(places.factors + row * 4), "f"(factor) : "memory");
  }
}

/// One warp tells the others when what a product takes is there, and finds the factors of its rows.
__device__ inline void watch(const Arguments& a, const Places& places) {
  const bool leads = threadIdx.x % 32 == 0;
  wait_for_earlier_kernels();
  for (int product = 0; product < a.count; ++product) {
    if (leads) {
      if (product > 0) wait_for_tiles(a.counters + product - 1, a.products[product - 1].tiles);
      barrier_arrive(places.rows_here(product));
    }
    __syncwarp();
    if (!a.products[product].normed) continue;
    find_factors(a, places);
    if (leads) barrier_arrive(places.factors_here(product));
  }
  // The last block to come here clears what no block waits for any more.
  if (leads && atomicAdd(a.counters + kMostProducts, 1) == gridDim.x - 1) {
    for (int i = 0; i <= kMostProducts; ++i) a.counters[i] = 0;
  }
}

}  // namespace sluice::cuda::layer_chain
