#pragma once

#include "kernels/cuda/decode_matmul_ends.cuh"
#include "kernels/cuda/wgmma.h"

/// How the warps of a block multiply, and where their sums go. The rows of the weight are the 64 rows of a wgmma, those of x its
/// columns, so that few rows waste nothing.
namespace sluice::cuda::decode_matmul {

/// The same place in block `rank` of the cluster.
__device__ __forceinline__ uint32_t place_in(int rank, uint32_t address) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

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

/// Waits for what other blocks of the cluster did.
__device__ __forceinline__ void wait_for_blocks(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Sums of 16 outputs for all rows, over the block's inputs.
template <int Rows>
__device__ __forceinline__ void multiply_tile(float (&sums)[Rows / 2], const Arguments& a, const Share& share,
                                              const Places<Rows>& places, Turn& stage, Turn& slot) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const bool leads = threadIdx.x % 32 == 0;
#pragma unroll
  for (int i = 0; i < Rows / 2; ++i) sums[i] = 0;
  int last_stage = -1;
  int last_slot = 0;
  const auto release = [&] {
    if (!leads || last_stage < 0) return;
    barrier_arrive(places.stage_emptied(last_stage));
    barrier_arrive(places.slot_emptied(last_slot));
  };
#pragma unroll 1
  for (int chunk = 0; chunk < share.chunks; ++chunk) {
    barrier_wait(places.stage_filled(stage.index), stage.parity);
    barrier_wait(places.slot_filled(slot.index), slot.parity);
    const uint64_t weight = matrix(places.stage(stage.index) + warp / 4 * kBoxBytes, 0, 1024);
    const uint64_t x = matrix(places.slot(slot.index), 0, 1024);
    products_begin();
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) multiply_keys<true>(sums, weight + 2 * k, x + 2 * k);
    products_commit();
    products_wait<1>();
    release();
    last_stage = stage.index;
    last_slot = slot.index;
    stage.next(a.stages);
    slot.next(a.slots);
  }
  products_wait<0>();
  pin(sums);
  release();
}

/// Where a warp's sums of a tile are added up: those of each warp in one block of the cluster.
template <int Rows>
struct Exchange {
  int warp, lane, owner;
  uint32_t mine, theirs;  // parts of this warp here, and this block's in the owner
  uint32_t signal;

  __device__ Exchange(const Arguments& a, const Share& share, const Places<Rows>& places)
      : warp(static_cast<int>(threadIdx.x) / 32),
        lane(static_cast<int>(threadIdx.x) % 32),
        owner(warp / (a.warps / share.split)) {
    mine = places.parts + warp % (a.warps / share.split) * (share.split - 1) * Places<Rows>::kPartBytes;
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
  Turn stage;
  Turn slot;
#pragma unroll 1
  for (int tile = 0; tile < share.tiles; ++tile) {
    float sums[Rows / 2];
    if (x_stays) slot = {};
    multiply_tile<Rows>(sums, a, share, places, stage, slot);
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
