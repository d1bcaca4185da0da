#pragma once

#include "kernels/cuda/products/decode_mlp_block.cuh"

/// How the warps of a block of DecodeMlp multiply, and where their sums go.
namespace sluice::cuda::decode_matmul {

/// The block's tile of gate and up, activated; returns the stage that the ring goes on with. By all warps that multiply.
template <int Rows>
__device__ Turn multiply_gated(const Arguments& a, const Down& down, const Share& share, const Places<Rows>& places,
                               const DownPlaces<Rows>& down_places) {
  const Exchange<Rows> exchange(a, share, places);
  Reader<Rows> reader(places, {places.slot(0), places.slot_filled(0), places.slots});
  float sums[Rows / 2];
  reader.multiply(sums, share.chunks);
  if (exchange.lane == 0) barrier_arrive(down_places.multiplied());
  if (exchange.owner != share.rank) {
    exchange.give(sums, places, 0);
  } else {
    if (share.split > 1) exchange.take(sums, share, places, 0);
    const int output = 16 * (share.first_tile * a.warps + exchange.warp);
    if (output < a.outputs) {
      Gated<Rows>(a, places).take(sums, output);
      give_piece(down, output / 2);
    }
  }
  order_shared_memory();
  __syncwarp();
  if (exchange.lane == 0) barrier_arrive(down_places.gated());
  return reader.stage();
}

/// Sums of the block's tile over its part of the inputs; the ring begins with `stage`. By all warps that multiply.
template <int Rows>
__device__ void multiply_down(const Arguments& a, const Down& down, const Places<Rows>& places,
                              const DownPlaces<Rows>& down_places, Turn stage) {
  const DownShare share(down);
  if (share.stages == 0) return;
  const int warp = uniform(static_cast<int>(threadIdx.x) / 32);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Reader<Rows, kTeams> reader(places, {down_places.x, down_places.group_filled(0), down.groups}, stage);
  float sums[Rows / 2];
  reader.multiply(sums, share.stages);
  // Those of the teams are added by way of the ring, which nothing comes into any more. Each adds some rows.
  const auto place = [&](int of_warp, int n) { return places.ring + ((of_warp * (Rows / 8) + n) * 32 + lane) * 16; };
  meet(a);
#pragma unroll
  for (int n = 0; n < Rows / 8; ++n) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(place(warp, n)), "f"(sums[4 * n]), "f"(sums[4 * n + 1]),
                 "f"(sums[4 * n + 2]), "f"(sums[4 * n + 3])
                 : "memory");
  }
  meet(a);
  float* const out =
      down.sums + static_cast<int64_t>(share.part) * a.rows * down.outputs + share.tile * kTileOutputs + warp % 4 * 16 + lane / 4;
#pragma unroll 1
  for (int n = warp / 4; n < Rows / 8; n += kTeams) {
    float total[4] = {};
#pragma unroll
    for (int team = 0; team < kTeams; ++team) {
      float four[4];
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(four[0]), "=f"(four[1]), "=f"(four[2]), "=f"(four[3])
                   : "r"(place(4 * team + warp % 4, n))
                   : "memory");
#pragma unroll
      for (int i = 0; i < 4; ++i) total[i] += four[i];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 8 * n + 2 * (lane % 4) + i % 2;
      if (row < a.rows) out[static_cast<int64_t>(row) * down.outputs + i / 2 * 8] = total[i];
    }
  }
}

}  // namespace sluice::cuda::decode_matmul
