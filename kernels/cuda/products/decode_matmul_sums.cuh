#pragma once

#include "kernels/cuda/primitives/cluster.cuh"
#include "kernels/cuda/primitives/wgmma.h"
#include "kernels/cuda/products/decode_matmul_ends.cuh"

/// How the warps of a block multiply, and where their sums go. The rows of the weight are the 64 rows of a wgmma, those of x its
/// columns, so that few rows waste nothing.
namespace sluice::cuda::decode_matmul {

/// Writes to another block, which its barrier counts.
__device__ __forceinline__ void send(uint32_t target, uint32_t barrier, const float* four) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(target),
               "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3]), "r"(barrier)
               : "memory");
}

/// At another block's barrier.
__device__ __forceinline__ void arrive_at(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Where x is: that many places, each with a barrier that tells it is filled and one that tells it is emptied.
struct RowSlots {
  uint32_t first;
  uint32_t barriers;
  int count;
};

/// What a warp reads: the ring of the weight and the places of x, in turn. Everything that does not change is in registers from
/// the start, and what the next chunk needs is known before it is there: between two chunks the tensor cores wait for each
/// instruction. `Teams` of four warps each have their own box of a stage and, if there are several, their own chunk of a place.
template <int Rows, int Teams = 1>
class Reader {
 public:
  /// Begins with `stage` of the ring.
  __device__ Reader(const Places<Rows>& places, const RowSlots& x, Turn stage = {})
      : stages_(places.stages),
        slots_(x.count),
        leads_(threadIdx.x % 32 == 0),
        stage_step_(places.stage_bytes / 16),
        first_weight_(low_word(places.stage(0) + team() * kBoxBytes)),
        first_x_(low_word(x.first + (Teams > 1 ? team() * Places<Rows>::kSlotBytes : 0))),
        stage_barriers_(places.stage_filled(0)),
        slot_barriers_(x.barriers),
        stage_(stage) {}

  /// From the first slot on, again.
  __device__ __forceinline__ void restart_x() { slot_ = {}; }
  /// That would be next.
  __device__ __forceinline__ Turn stage() const { return stage_; }

  /// Sums of 16 outputs for all rows, over `chunks` chunks, at least one.
  __device__ __forceinline__ void multiply(float (&sums)[Rows / 2], int chunks) {
#pragma unroll
    for (int i = 0; i < Rows / 2; ++i) sums[i] = 0;
    pin(sums);
    Chunk at = next_chunk();
    Chunk read;         // what the last products read, unless that has been released
    bool here = false;  // at
#pragma unroll 1
    do {
      while (!here) here = all_lanes(barrier_try_wait(at.stage, stage_.parity) & barrier_try_wait(at.slot, slot_.parity));
      products_begin();
#pragma unroll
      for (int k = 0; k < kChunk / 16; ++k) multiply_keys<true>(sums, matrix_at(at.weight + 2 * k), matrix_at(at.x + 2 * k));
      products_commit();
      const Chunk now = at;
      stage_.next(stages_);
      slot_.next(slots_);
      at = next_chunk();
      here = all_lanes(barrier_is_over(at.stage, stage_.parity) & barrier_is_over(at.slot, slot_.parity));
      products_wait<1>();
      release(read);
      read = now;
      if (!here) {  // there is time
        products_wait<0>();
        release(read);
        read = {};
      }
    } while (--chunks > 0);
    products_wait<0>();
    pin(sums);
    release(read);
  }

 private:
  static constexpr int kBarriers = Places<Rows>::kBarriers;

  /// Of a chunk: the barriers of its places, and the low words of what is there, as `matrix` has it.
  struct Chunk {
    uint32_t stage = 0, slot = 0, weight = 0, x = 0;
  };

  __device__ __forceinline__ Chunk next_chunk() const {
    return {.stage = stage_barriers_ + stage_.index * kBarriers,
            .slot = slot_barriers_ + slot_.index * kBarriers,
            .weight = first_weight_ + stage_.index * stage_step_,
            .x = first_x_ + slot_.index * (Teams * Places<Rows>::kSlotBytes / 16)};
  }

  static __device__ __forceinline__ int team() { return uniform(static_cast<int>(threadIdx.x) / 128); }

  /// Of `matrix`, which has a constant in its other word.
  static __device__ __forceinline__ uint32_t low_word(uint32_t address) {
    return static_cast<uint32_t>(matrix(address, 0, 1024));
  }
  static __device__ __forceinline__ uint64_t matrix_at(uint32_t low) {
    return (matrix(0, 0, 1024) & ~uint64_t{0xFFFFFFFF}) | low;
  }

  /// Whether it holds for all lanes, which the compiler then knows to go on together: it keeps what they have in common in
  /// registers of the warp.
  static __device__ __forceinline__ bool all_lanes(bool holds) { return __all_sync(0xffffffffU, holds) != 0; }

  __device__ __forceinline__ void release(const Chunk& chunk) const {
    const bool arrives = leads_ && chunk.stage != 0;
    barrier_arrive_if(arrives, chunk.stage + 8);
    barrier_arrive_if(arrives, chunk.slot + 8);
  }

  int stages_, slots_;
  bool leads_;
  uint32_t stage_step_;
  uint32_t first_weight_, first_x_;
  uint32_t stage_barriers_, slot_barriers_;
  Turn stage_, slot_;
};

/// Where a warp's sums of a tile are added up: those of each warp in one block of the cluster.
template <int Rows>
struct Exchange {
  int warp, lane, owner;
  uint32_t mine, theirs;  // parts of this warp here, and this block's in the owner
  uint32_t signal;

  __device__ Exchange(const Arguments& a, const Share& share, const Places<Rows>& places)
      : warp(uniform(static_cast<int>(threadIdx.x) / 32)),
        lane(static_cast<int>(threadIdx.x) % 32),
        owner(warp / (a.warps >> a.split_bits)) {
    mine = places.parts + warp % (a.warps >> a.split_bits) * (share.split - 1) * Places<Rows>::kPartBytes;
    theirs = place_in(owner, mine + (share.rank < owner ? share.rank : share.rank - 1) * Places<Rows>::kPartBytes);
    signal = place_in(owner, places.sums_here(warp));
  }

  __device__ __forceinline__ void give(const float (&sums)[Rows / 2], const Places<Rows>& places, int tile) const {
    if (tile > 0) wait_for_blocks(places.sums_taken(warp), (tile - 1) % 2);
#pragma unroll
    for (int n = 0; n < Rows / 8; ++n) send(theirs + (32 * n + lane) * 16, signal, sums + 4 * n);
  }

  /// Adds the other blocks' sums, in their order.
  __device__ __forceinline__ void take(float (&sums)[Rows / 2], const Share& share, const Places<Rows>& places, int tile) const {
    if (lane == 0) barrier_expect(places.sums_here(warp), (share.split - 1) * Places<Rows>::kPartBytes);
    wait_for_blocks(places.sums_here(warp), tile % 2);
#pragma unroll 1
    for (int part = 0; part < share.split - 1; ++part) {
#pragma unroll
      for (int n = 0; n < Rows / 8; ++n) {
        float four[4];
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(four[0]), "=f"(four[1]), "=f"(four[2]), "=f"(four[3])
                     : "r"(mine + part * Places<Rows>::kPartBytes + (32 * n + lane) * 16)
                     : "memory");
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[4 * n + i] += four[i];
      }
    }
    if (tile + 1 == share.tiles) return;  // they may have ended
    __syncwarp();
    if (lane < share.split && lane != share.rank) arrive_at(place_in(lane, places.sums_taken(warp)));
  }
};

template <int Rows, template <int> class End>
__device__ void multiply(const Arguments& a, const Share& share, const Places<Rows>& places) {
  const Exchange<Rows> exchange(a, share, places);
  const bool x_stays = share.chunks <= a.slots;
  End<Rows> end(a, places);
  Reader<Rows> reader(places, {places.slot(0), places.slot_filled(0), places.slots});
#pragma unroll 1
  for (int tile = 0; tile < share.tiles; ++tile) {
    float sums[Rows / 2];
    if (x_stays) reader.restart_x();
    reader.multiply(sums, share.chunks);
    if (exchange.owner != share.rank) {
      exchange.give(sums, places, tile);
      continue;
    }
    if (share.split > 1) exchange.take(sums, share, places, tile);
    const int output = 16 * ((share.first_tile + tile * share.step) * a.warps + exchange.warp);
    if (output < a.outputs) end.take(sums, output);
  }
  end.finish();
}

}  // namespace sluice::cuda::decode_matmul
