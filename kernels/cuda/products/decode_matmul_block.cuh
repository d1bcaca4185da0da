#pragma once

#include "kernels/cuda/attention/attention_device.cuh"
#include "kernels/cuda/primitives/cluster.cuh"
#include "kernels/cuda/primitives/ring.cuh"
#include "kernels/cuda/sampling/sample_best.cuh"

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
  int split_bits = 0;                    // the binary logarithm of a cluster's blocks: nothing is divided before copies begin
  int clusters = 0;                      // of the launch
  int tiles = 0;                         // of 16 * warps outputs
  int rounds = 0;                        // tiles of a cluster, at most
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

  __device__ explicit Share(const Arguments& a)
      : rank(static_cast<int>(cluster_rank())),
        split(1 << a.split_bits),
        first_chunk((a.chunks * rank) >> a.split_bits),
        chunks(((a.chunks * (rank + 1)) >> a.split_bits) - first_chunk),
        first_tile(static_cast<int>(blockIdx.x) >> a.split_bits),
        step(a.clusters),
        tiles(first_tile + (a.rounds - 1) * step < a.tiles ? a.rounds : a.rounds - 1) {}
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
    barriers = parts + (a.warps >> a.split_bits) * (share.split - 1) * kPartBytes;
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

/// By one thread: lanes would make theirs one behind the other.
template <int Rows>
__device__ __forceinline__ void init_barriers(const Arguments& a, const Places<Rows>& places) {
  const int filled = a.stages + a.slots;
#pragma unroll 4
  for (int i = 0; i < filled; ++i) {
    barrier_init(places.stage_filled(i), 1);  // slots' are behind those of stages
    barrier_init(places.stage_emptied(i), a.warps);
  }
#pragma unroll 4
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

/// Chunks that a thread asks for at a time: two take it a quarter more time than one, but both of their places must be empty.
inline constexpr int kTogether = 2;

/// What a thread that copies has come to: which place is next, and how many chunks it has asked for.
struct Asking {
  Turn turn;
  int asked = 0;

  /// Waits until the next `count` of `places` are empty, one or two. They are emptied one behind the other, so that the last
  /// tells of both; nobody has to empty them the first time round.
  __device__ __forceinline__ void wait(uint32_t emptied, int count, int places) const {
    if (asked + count <= places) return;
    Turn last = turn;
    if (count > 1) last.next(places);
    barrier_wait(emptied + last.index * Places<8>::kBarriers, last.parity ^ 1);
  }
  __device__ __forceinline__ void next(int places) {
    turn.next(places);
    ++asked;
  }
};

/// One thread copies the block's part of the weight, tile by tile, to the ring, which has had nothing yet; returns how far it has
/// come. It does not wait for earlier kernels.
template <int Rows, bool Gated>
__device__ Asking copy_weight(const CUtensorMap* map, const Arguments& a, const Share& share, const Places<Rows>& places) {
  const int boxes = a.warps / 4;
  const int together = boxes == 1 ? min(kTogether, a.stages) : 1;
  Asking asking;
#pragma unroll 1
  for (int tile = 0; tile < share.tiles; ++tile) {
    const int output = (share.first_tile + tile * share.step) * 16 * a.warps;
#pragma unroll 1
    for (int chunk = 0; chunk < share.chunks;) {
      const int end = min(chunk + together, share.chunks);
      asking.wait(places.stage_emptied(0), end - chunk, a.stages);
#pragma unroll 1
      for (; chunk < end; ++chunk) {
        const int stage = asking.turn.index;
        const uint32_t barrier = places.stage_filled(stage);
        barrier_expect(barrier, places.stage_bytes);
#pragma unroll 1
        for (int box = 0; box < boxes; ++box) {
          copy_outputs<Gated>(map, places.stage(stage) + box * kBoxBytes, barrier, (share.first_chunk + chunk) * kChunk,
                              output + box * 64);
        }
        asking.next(a.stages);
      }
    }
  }
  return asking;
}

/// Chunks of x that are copied: once if there are slots for all of it, else for every tile.
__device__ __forceinline__ int row_chunks(const Arguments& a, const Share& share) {
  return share.chunks * (share.chunks <= a.slots ? 1 : share.tiles);
}

/// Has the first slots' barriers expect what `copy_rows` brings there, so that it can ask for all of it at once.
template <int Rows>
__device__ void expect_rows(const Arguments& a, const Share& share, const Places<Rows>& places) {
  const int first = min(a.slots, row_chunks(a, share));
#pragma unroll 1
  for (int slot = 0; slot < first; ++slot) barrier_expect(places.slot_filled(slot), Places<Rows>::kSlotBytes);
}

/// One thread, which has called `expect_rows`, copies the block's part of x.
template <int Rows>
__device__ void copy_rows(const CUtensorMap* map, const Arguments& a, const Share& share, const Places<Rows>& places) {
  const int all = row_chunks(a, share);
  const int together = min(kTogether, a.slots);
  Asking asking;
  int chunk = 0;  // of the tile
#pragma unroll 1
  while (asking.asked < all) {
    const int end = min(asking.asked + together, all);
    asking.wait(places.slot_emptied(0), end - asking.asked, a.slots);
#pragma unroll 1
    while (asking.asked < end) {
      const int slot = asking.turn.index;
      if (asking.asked >= a.slots) barrier_expect(places.slot_filled(slot), Places<Rows>::kSlotBytes);
      copy_box(map, places.slot(slot), places.slot_filled(slot), (share.first_chunk + chunk) * kChunk, 0, kEvictLast);
      asking.next(a.slots);
      if (++chunk == share.chunks) chunk = 0;
    }
  }
}

}  // namespace sluice::cuda::decode_matmul
