#pragma once

#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/products/decode_matmul_sums.cuh"

/// What a block of DecodeMlp has of the two products, and how it comes to shared memory. A block computes a tile of gate and up,
/// as those of DecodeMatmul do. Of down it then has 64 outputs and a part of the inputs. Its twelve warps are three teams, of
/// which each takes a third of the inputs of a stage: the ring has places for 192 outputs of gate and up by 64 inputs, or for 64
/// outputs of down by 192 inputs.
namespace sluice::cuda::decode_matmul {

inline constexpr int kTeams = kMostWarps / 4;
inline constexpr int kStageInputs = kTeams * kChunk;
inline constexpr int kTileOutputs = 64;
inline constexpr int kPieceInputs = 8;  // that a warp makes of gate and up

struct Down {
  int inputs = 0;
  int outputs = 0;
  int tiles = 0;
  int parts = 0;
  int stages = 0;                // of all inputs, the last one full or not
  int groups = 0;                // places for a stage's rows of x
  int ahead = 0;                 // stages of down that a block asks for while others wait for gate and up
  float* sums = nullptr;         // [parts, rows, outputs]
  uint32_t* counters = nullptr;  // [stages] pieces that are there, then blocks that have gate and up, then warps that left
};

/// What a block does: stages of a part, of a tile; blocks that are left over do nothing.
struct DownShare {
  int tile, part, first, stages;

  __device__ explicit DownShare(const Down& down)
      : tile(static_cast<int>(blockIdx.x) % down.tiles),
        part(static_cast<int>(blockIdx.x) / down.tiles),
        first(down.stages * part / down.parts),
        stages(part < down.parts ? down.stages * (part + 1) / down.parts - first : 0) {}
};

/// Shared memory of down: groups of rows where slots and sums of gate and up have been, and barriers behind those.
template <int Rows>
struct DownPlaces {
  static constexpr int kGroupBytes = kTeams * Places<Rows>::kSlotBytes;

  uint32_t x, barriers;

  __device__ DownPlaces(const Arguments& a, const Places<Rows>& places)
      : x(places.x), barriers(places.stage_filled(a.stages + a.slots + a.warps)) {}

  /// All warps have multiplied gate and up, whose rows are read no more.
  __device__ uint32_t multiplied() const { return barriers; }
  /// They are done with their sums, too.
  __device__ uint32_t gated() const { return barriers + 8; }
  __device__ uint32_t group_filled(int index) const { return barriers + (1 + index) * Places<Rows>::kBarriers; }
  __device__ uint32_t group_emptied(int index) const { return group_filled(index) + 8; }
  __device__ uint32_t group(int index) const { return x + index * kGroupBytes; }
};

template <int Rows>
__device__ __forceinline__ void init_down_barriers(const Arguments& a, const Down& down, const DownPlaces<Rows>& places) {
  barrier_init(places.multiplied(), a.warps);
  barrier_init(places.gated(), a.warps);
#pragma unroll 1
  for (int group = 0; group < down.groups; ++group) {
    barrier_init(places.group_filled(group), 1);
    barrier_init(places.group_emptied(group), a.warps);
  }
}

/// Copies that follow see what this thread wrote to device memory, or has seen written there.
__device__ __forceinline__ void order_device_memory() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
/// Copies that follow overwrite nothing of shared memory that this thread is to read.
__device__ __forceinline__ void order_shared_memory() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// The block's barriers are seen by all of its cluster once `wait_for_barriers` has been called. By all threads of a warp; those
/// of the warp that copies weights have made them, and need not wait before they copy.
__device__ __forceinline__ void give_barriers(const Arguments& a, const Share& share, bool copies_weights) {
  if (share.split > 1) {
    arrive_in_cluster_relaxed();
  } else if (copies_weights) {
    asm volatile("bar.arrive 2, %0;" ::"r"(32 * (a.warps + 2)) : "memory");
  }
}
__device__ __forceinline__ void wait_for_barriers(const Arguments& a, const Share& share, bool copies_weights) {
  if (share.split > 1) {
    wait_for_cluster();
  } else if (!copies_weights) {
    asm volatile("bar.sync 2, %0;" ::"r"(32 * (a.warps + 2)) : "memory");
  }
}

/// Tells all blocks that a piece is there, from `input` on, which this warp has stored.
__device__ __forceinline__ void give_piece(const Down& down, int input) {
  order_device_memory();
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(down.counters + input / kStageInputs) : "memory");
  }
}

/// Whether all of a stage's inputs are there.
__device__ __forceinline__ bool is_there(const Down& down, int stage) {
  const int pieces = (min(kStageInputs, down.inputs - stage * kStageInputs) + kPieceInputs - 1) / kPieceInputs;
  uint32_t there;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(down.counters + stage) : "memory");
  return there == static_cast<uint32_t>(pieces);
}

/// By the two warps of each block that have waited for other blocks, once they do no more: the last one clears all counters. They
/// have come to rest by then: of every stage some block has waited for all pieces, and all blocks have been counted by
/// `keep_pace`, each before it left.
__device__ __forceinline__ void leave(const Down& down) {
  uint32_t left;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(left) : "l"(down.counters + down.stages + 1) : "memory");
  if (left != 2 * gridDim.x - 1) return;
  for (int i = 0; i <= down.stages + 1; ++i) down.counters[i] = 0;
}

/// This block has its weights of gate and up, and waits, if it `waits`, until all others do: memory would give those that are
/// ahead as much as those that everybody is to wait for.
__device__ __forceinline__ void keep_pace(const Down& down, bool waits) {
  wait_for_earlier_kernels();  // of which one may use the same counters
  uint32_t* const counter = down.counters + down.stages;
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
  uint32_t there = 0;
  while (waits && there < gridDim.x) {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(counter) : "memory");
  }
}

/// One thread copies the block's part of the weight to the ring, behind the chunks of gate and up, of which the ring holds more
/// than `ahead`.
template <int Rows>
__device__ void copy_down(const CUtensorMap* map, const Down& down, const Places<Rows>& places, Asking asking) {
  const DownShare share(down);
  const Turn last = asking.turn.before(places.stages);
  const int ahead = min(down.ahead, share.stages);
#pragma unroll 1
  for (int stage = 0;; ++stage) {
    if (stage == ahead) {
      barrier_wait(places.stage_filled(last.index), last.parity);
      keep_pace(down, stage < share.stages);
    }
    if (stage == share.stages) break;
    asking.wait(places.stage_emptied(0), 1, places.stages);
    const uint32_t barrier = places.stage_filled(asking.turn.index);
    barrier_expect(barrier, places.stage_bytes);
#pragma unroll
    for (int box = 0; box < kTeams; ++box) {
      copy_box(map, places.stage(asking.turn.index) + box * kBoxBytes, barrier,
               (share.first + stage) * kStageInputs + box * kChunk, share.tile * kTileOutputs, kEvictFirst);
    }
    asking.next(places.stages);
  }
  leave(down);
}

/// One warp copies activated rows as they come: first to where rows of gate and up were, then to where sums were, too.
template <int Rows>
__device__ void copy_activated(const CUtensorMap* map, const Arguments& a, const Down& down, const DownPlaces<Rows>& places) {
  const DownShare share(down);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int known = 0;  // stages that are there
  Asking asking;
#pragma unroll 1
  for (int stage = 0; stage < share.stages; ++stage) {
    while (known <= stage) {
      const int asked = known + lane;
      const uint32_t missing = ~__ballot_sync(~0U, asked < share.stages && is_there(down, share.first + asked));
      known += missing == 0 ? 32 : __ffs(static_cast<int>(missing)) - 1;
      __syncwarp();  // what any lane has seen, all see
      order_device_memory();
    }
    if (stage == 0) barrier_wait(places.multiplied(), 0);
    if (stage == a.slots / kTeams) barrier_wait(places.gated(), 0);
    if (lane == 0) {
      asking.wait(places.group_emptied(0), 1, down.groups);
      const uint32_t barrier = places.group_filled(asking.turn.index);
      barrier_expect(barrier, DownPlaces<Rows>::kGroupBytes);
#pragma unroll
      for (int box = 0; box < kTeams; ++box) {
        copy_box(map, places.group(asking.turn.index) + box * Places<Rows>::kSlotBytes, barrier,
                 (share.first + stage) * kStageInputs + box * kChunk, 0, kEvictLast);
      }
    }
    asking.next(down.groups);
  }
  if (lane == 0) leave(down);
}

}  // namespace sluice::cuda::decode_matmul
