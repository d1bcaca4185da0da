#pragma once

#include "kernels/cuda/attention_device.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/ring.cuh"
#include "kernels/cuda/sample_best.cuh"

/// What a block of DecodeMatmul computes, where its shared memory has what, and how weights and rows get there.
namespace sluice::cuda::decode_matmul {

inline constexpr int kChunk = 64;                           // inputs: 128 bytes of bf16, the width of the swizzle
inline constexpr int kBoxBytes = 64 * kChunk * 2;           // of 64 outputs
inline constexpr int kMostWarps = 12;                       // that multiply, 16 outputs each
inline constexpr int kMostThreads = 32 * (kMostWarps + 2);  // a warp copies the weight, one x

struct Arguments {
  void* out = nullptr;
  int64_t out_stride = 0;
  bool narrow = false;  // out is bf16
  int rows = 0;
  int outputs = 0;                       // rows of the weight
  int chunks = 0;                        // of all inputs
  int tiles = 0;                         // of 16 * warps outputs
  int warps = 0;                         // that multiply
  int stages = 0;                        // chunks of the weight in shared memory
  int slots = 0;                         // chunks of x there
  sampling::BestTokens* best = nullptr;  // where nothing but the greatest output of each row is wanted
};

/// What a block does: `chunks` chunks of inputs from `first_chunk` on, of `tiles` tiles, `step` apart.
struct Share {
  int rank, split;  // the block in its cluster
  int first_chunk, chunks;
  int first_tile, step, tiles;

  __device__ explicit Share(const Arguments& a) {
    rank = static_cast<int>(cluster_rank());
    split = static_cast<int>(cluster_blocks());
    first_chunk = a.chunks * rank / split;
    chunks = a.chunks * (rank + 1) / split - first_chunk;
    first_tile = static_cast<int>(blockIdx.x) / split;
    step = static_cast<int>(gridDim.x) / split;
    tiles = (a.tiles - first_tile + step - 1) / step;
  }
};

/// Shared memory, by shared address: the ring of the weight, x, sums from other blocks, barriers. `Rows` are those of x in a
/// slot.
template <int Rows>
struct Places {
  static constexpr int kSlotBytes = Rows * kChunk * 2;
  static constexpr int kPartBytes = 16 * Rows * 4;  // sums of a warp
  static constexpr int kBarriers = 16;              // bytes of two barriers

  uint32_t ring, x, parts, barriers;
  int stage_bytes, stages, slots;

  __device__ Places(const Arguments& a, const Share& share, uint32_t raw)
      : stage_bytes(a.warps / 4 * kBoxBytes), stages(a.stages), slots(a.slots) {
    ring = (raw + 1023) / 1024 * 1024;
    x = ring + stages * stage_bytes;
    parts = x + slots * kSlotBytes;
    barriers = parts + a.warps / share.split * (share.split - 1) * kPartBytes;
  }

  __device__ uint32_t stage(int index) const { return ring + index * stage_bytes; }
  __device__ uint32_t slot(int index) const { return x + index * kSlotBytes; }
  __device__ uint32_t stage_filled(int index) const { return barriers + index * kBarriers; }
  __device__ uint32_t stage_emptied(int index) const { return stage_filled(index) + 8; }
  __device__ uint32_t slot_filled(int index) const { return stage_filled(stages + index); }
  __device__ uint32_t slot_emptied(int index) const { return slot_filled(index) + 8; }
  /// Of a warp whose sums are added in this block: all other blocks' have come.
  __device__ uint32_t sums_here(int warp) const { return stage_filled(stages + slots + warp); }
  /// Of a warp whose sums are added in another block: there is room for more.
  __device__ uint32_t sums_taken(int warp) const { return sums_here(warp) + 8; }
};

template <int Rows>
__device__ __forceinline__ void init_barriers(const Arguments& a, const Places<Rows>& places) {
#pragma unroll 1
  for (int i = 0; i < a.stages; ++i) {
    barrier_init(places.stage_filled(i), 1);
    barrier_init(places.stage_emptied(i), a.warps);
  }
#pragma unroll 1
  for (int i = 0; i < a.slots; ++i) {
    barrier_init(places.slot_filled(i), 1);
    barrier_init(places.slot_emptied(i), a.warps);
  }
#pragma unroll 1
  for (int warp = 0; warp < a.warps; ++warp) {
    barrier_init(places.sums_here(warp), 1);
    barrier_init(places.sums_taken(warp), 1);
  }
  publish_barriers();
}

/// Copies a box of a matrix to shared memory.
__device__ __forceinline__ void copy_box(const CUtensorMap* map, uint32_t target, uint32_t barrier, int column, int row,
                                         uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4}], [%2], "
      "%5;" ::"r"(target),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "l"(policy)
      : "memory");
}

/// Copies 64 outputs of a chunk of the weight to shared memory: as they follow each other or, `Gated`, 8 of gate and the 8 of up
/// that belong to them in turn.
template <bool Gated>
__device__ __forceinline__ void copy_outputs(const CUtensorMap* map, uint32_t target, uint32_t barrier, int column, int output) {
  if constexpr (Gated) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, %4, "
        "%5}], "
        "[%2], %6;" ::"r"(target),
        "l"(map), "r"(barrier), "r"(column), "r"(0), "r"(output / 16), "l"(kEvictFirst)
        : "memory");
  } else {
    copy_box(map, target, barrier, column, output, kEvictFirst);
  }
}

/// One thread copies the block's part of the weight, tile by tile. It does not wait for earlier kernels.
template <int Rows, bool Gated>
__device__ void copy_weight(const CUtensorMap* map, const Arguments& a, const Share& share, const Places<Rows>& places) {
  Turn turn;
#pragma unroll 1
  for (int tile = 0; tile < share.tiles; ++tile) {
    const int output = (share.first_tile + tile * share.step) * 16 * a.warps;
#pragma unroll 1
    for (int chunk = 0; chunk < share.chunks; ++chunk) {
      const uint32_t barrier = places.stage_filled(turn.index);
      barrier_wait(places.stage_emptied(turn.index), turn.parity ^ 1);
      barrier_expect(barrier, places.stage_bytes);
#pragma unroll 1
      for (int box = 0; box < a.warps / 4; ++box) {
        copy_outputs<Gated>(map, places.stage(turn.index) + box * kBoxBytes, barrier, (share.first_chunk + chunk) * kChunk,
                            output + box * 64);
      }
      turn.next(a.stages);
    }
  }
}

/// One thread copies the block's part of x: once if there are slots for all of it, else for every tile.
template <int Rows>
__device__ void copy_rows(const CUtensorMap* map, const Arguments& a, const Share& share, const Places<Rows>& places) {
  Turn turn;
  const int times = share.chunks <= a.slots ? 1 : share.tiles;
#pragma unroll 1
  for (int time = 0; time < times; ++time) {
#pragma unroll 1
    for (int chunk = 0; chunk < share.chunks; ++chunk) {
      const uint32_t barrier = places.slot_filled(turn.index);
      barrier_wait(places.slot_emptied(turn.index), turn.parity ^ 1);
      barrier_expect(barrier, Places<Rows>::kSlotBytes);
      copy_box(map, places.slot(turn.index), barrier, (share.first_chunk + chunk) * kChunk, 0, kEvictLast);
      turn.next(a.slots);
    }
  }
}

}  // namespace sluice::cuda::decode_matmul
