#pragma once

#include <algorithm>

#include "kernels/cuda/attention/prefill_attention.h"
#include "kernels/cuda/attention/prefill_sights.cuh"

/// Which tiles of tokens the rows of a tile see, so that others are neither read nor multiplied, and which of them need a mask.
namespace sluice::cuda::prefill {

inline constexpr int kListThreads = 256;
inline constexpr int kListedAtOnce = 1024;  // tiles of tokens

/// The bits of a tile's entry, for a whole warp whose lanes hold four rows each, two of either warpgroup; -1: nobody sees any of
/// it.
template <int Tokens>
__device__ __forceinline__ int partial_bits(const OwnSights<4>& own, int tile) {
  int bits = 0;
  bool seen = false;
  for (int warpgroup = 0; warpgroup < 2; ++warpgroup) {
    uint32_t any = 0;
    uint32_t all = ~0U;
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < Tokens / 32; ++i) {
        const uint32_t word = own.word(2 * warpgroup + half, tile * (Tokens / 32) + i);
        any |= word;
        all &= word;
      }
    }
    seen |= __any_sync(0xffffffffU, any != 0) != 0;
    bits |= __all_sync(0xffffffffU, all == ~0U) != 0 ? 0 : 1 << warpgroup;
  }
  return seen ? bits : -1;
}

/// A block lists the tiles of one tile of rows, in order. Rows that see nothing get the first tile, masked. `a.kv_heads` is how
/// many heads see something else.
template <int Dim>
__global__ void __launch_bounds__(kListThreads) list_kernel(const ListedArguments a, int32_t* lists) {
  constexpr int kTokens = Shape<Dim>::kTokens;
  __shared__ int8_t found[kListedAtOnce];
  const int number = static_cast<int>(blockIdx.x);
  if (number >= count_works(a)) return;
  const Work work = find_work<Dim, true>(a, number);
  const int lane = threadIdx.x % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  OwnSights<4> own;
  for (int i = 0; i < 4; ++i) own.take(a, work, i, lane + 32 * i);
  int32_t* const list = lists + a.sights.list_place(work.row_tile, work.head);
  const int tiles = (work.length + kTokens - 1) / kTokens;
  int count = 0;  // of the first warp
  for (int begin = 0; begin < tiles; begin += kListedAtOnce) {
    const int end = min(tiles, begin + kListedAtOnce);
    for (int tile = begin + warp; tile < end; tile += kListThreads / 32) {
      const int bits = partial_bits<kTokens>(own, tile);
      if (lane == 0) found[tile - begin] = static_cast<int8_t>(bits);
    }
    __syncthreads();
    for (int tile = begin + lane; warp == 0 && tile - lane < end; tile += 32) {
      const int bits = tile < end ? found[tile - begin] : -1;
      const unsigned seen = __ballot_sync(0xffffffffU, bits >= 0);
      if (bits >= 0) list[1 + count + __popc(seen & ((1U << lane) - 1))] = Entry(tile, bits).bits;
      count += __popc(seen);
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  if (count == 0) list[1] = Entry(0, 3).bits;
  list[0] = max(count, 1);
}

/// Every sequence may leave a tile unfilled.
inline int64_t most_row_tiles(const PrefillShape& shape) {
  return static_cast<int64_t>(shape.rows) * shape.group / kTileRows + shape.sequences;
}

/// Numbers from the list of a tile of rows to the next: how many entries it has, and those.
inline int list_stride(const PrefillShape& shape, int dim) {
  const int tokens = dim == 256 ? Shape<256>::kTokens : Shape<128>::kTokens;
  static_assert(Shape<64>::kTokens == Shape<128>::kTokens);
  return 1 + (std::max(1, shape.most_tokens) + tokens - 1) / tokens;
}

inline Sights sights_of(const PrefillShape& shape, const PrefillTables& tables, int dim) {
  return {tables.slots, tables.mask_indptr, tables.masks, tables.mask_heads, tables.lists, list_stride(shape, dim)};
}

}  // namespace sluice::cuda::prefill
