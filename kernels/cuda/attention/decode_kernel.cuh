#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/attention/decode_merge.cuh"
#include "kernels/cuda/attention/decode_row.cuh"
#include "kernels/cuda/attention/decode_source.cuh"
#include "kernels/cuda/attention/decode_warps.cuh"
#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/runtime/runtime.h"

/// The kernel of decode attention, and which of its kinds a layout takes.
namespace sluice::cuda::decode {

/// What is asked of the tokens of lists.
enum class Lists : uint8_t {
  kWhole,   // all count
  kMasked,  // some may not
  kLogits,  // as kMasked, and what they score is kept (Arguments::logits)
};

/// Which tokens of a list count.
class ListMask {
 public:
  __device__ __forceinline__ ListMask(const Arguments& a, int row) {
    if (a.mask_indptr == nullptr) return;
    const int list = list_of(a, row);
    const int first = a.mask_indptr[list];
    const int words = a.mask_indptr[list + 1] - first;
    words_ = words == 0 ? nullptr : a.masks + first;
    if (a.mask_heads > 1 && words > 0) words_ += words / a.mask_heads * ((row - list * a.kv_heads) % a.mask_heads);
  }
  /// Those of the 16 of a tile, as far as they are there.
  __device__ __forceinline__ uint32_t tile(int index) const {
    return words_ == nullptr ? 0xffffU : words_[index / 2] >> (index % 2 * kTileTokens) & 0xffffU;
  }

 private:
  const uint32_t* words_ = nullptr;  // all
};

/// All do.
struct Unmasked {
  __device__ __forceinline__ Unmasked(const Arguments&, int) {}
  __device__ __forceinline__ uint32_t tile(int) const { return 0; }
};

template <DataType Type, int Dim, int Box, bool Wide, Lists Kind>
__global__ void __launch_bounds__(Shape<Type, Dim, Box>::kThreads, 1)
    decode_kernel(const __grid_constant__ CUtensorMap map, const __grid_constant__ Arguments a) {
  using S = Shape<Type, Dim, Box>;
  constexpr int kStages = S::kStages;
  extern __shared__ uint8_t raw[];
  uint8_t* tiles = raw + (1024 - shared_address(raw) % 1024) % 1024;
  float* merge = reinterpret_cast<float*>(tiles + S::kWarps * kStages * S::kTileBytes);
  uint64_t* barriers = reinterpret_cast<uint64_t*>(merge + S::kMergeFloats);
  __shared__ WarpParts<S> warp_parts;
  __shared__ bool merges;

  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const uint32_t ring_barriers = shared_address(barriers + warp * kStages);
  uint8_t* ring = tiles + warp * kStages * S::kTileBytes;
  if (threadIdx.x == 0) prefetch_map(&map);
  if (lane < kStages) barrier_init(ring_barriers + 8 * lane, 1);
  publish_barriers();
  __syncwarp();  // no other warp uses these barriers
  const int rows = a.sequences * a.kv_heads;
  Guess<S, Box> guess(a, rows, warp);
  // All of the above overlaps the end of the kernel before; nothing that it wrote may be counted on before the wait.
  let_next_kernel_start();
  if (!a.ready) wait_for_earlier_kernels();
  guess.ask(a);
  const Stretch stretch = find_stretch<S::kThreads, Dim>(a, rows);
  if (stretch.first >= stretch.last) {
    if (a.ready) wait_for_earlier_kernels();
    return;
  }

  Source<S, Box> source(a, stretch, warp, guess);
  int asked = 0;  // tiles of this warp
  const auto copy = [&](int slot) {
    source.copy(&map, a, stretch, asked, shared_address(ring + slot * S::kTileBytes), ring_barriers + 8 * slot);
    ++asked;
  };
  if (a.ready) {
#pragma unroll 1
    while (asked < kStages && !source.is_last(stretch, asked)) copy(asked);
    wait_for_earlier_kernels();
  }
#pragma unroll 1
  while (asked < kStages) copy(asked);

  int slot = 0;
  uint32_t parity = 0;
  int tile_index = stretch.first + warp;
  for (int row = stretch.row, row_begin = stretch.row_begin; row_begin < stretch.last;) {  // all warps are in the same row
    const int tokens = row_tokens(a, row);
    const int row_end = row_begin + tiles_of(tokens);
    const int sequence = a.by_kv_heads.quotient(row);
    const int head = row - sequence * a.kv_heads;
    WarpRow<Type, Dim, Box, Wide> mine(a.q + sequence * a.query_stride + head * a.group * Dim, a.group, a.scale);
    const Parts parts(stretch, row, row_begin, row_end);
    std::conditional_t<Kind == Lists::kWhole, Unmasked, ListMask> mask(a, row);

    for (; tile_index < min(row_end, stretch.last); tile_index += S::kWarps) {
      const uint32_t counting = mask.tile(tile_index - row_begin);  // is asked for while the tile is on its way
      barrier_wait(ring_barriers + 8 * slot, parity);
      const int left = tokens - (tile_index - row_begin) * kTileTokens;
      if constexpr (Kind == Lists::kWhole) {
        mine.attend(ring + slot * S::kTileBytes, left);
      } else if constexpr (Kind == Lists::kMasked) {
        mine.attend_masked(ring + slot * S::kTileBytes, left, counting);
      } else {
        mine.attend_kept(ring + slot * S::kTileBytes, left, counting, a.group,
                         {a.logits + row * a.group * a.logit_stride + (tile_index - row_begin) * kTileTokens, a.logit_stride});
      }
      // The copy engine writes here next: after what this warp wrote, and after all its lanes have read.
      if (left < kTileTokens) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      copy(slot);
      if (++slot == kStages) {
        slot = 0;
        parity ^= 1;
      }
    }

    const bool begins = row_begin >= stretch.first;
    const bool whole = begins && row_end <= stretch.last;
    const bool in_pair = a.paired && stretch.parts == 2;
    float* partial = whole ? nullptr
                     : in_pair
                         ? reinterpret_cast<float*>(tiles)  // this stretch was the only one, and its tiles are read
                         : a.partials + (2 * static_cast<size_t>(blockIdx.x) + (begins ? 1 : 0)) * part_floats(a.group, Dim);
    __syncthreads();
    const int64_t first_head = static_cast<int64_t>(row) * a.group;
    const RowTarget target{a.out + first_head * Dim, a.log_sums == nullptr ? nullptr : a.log_sums + first_head, partial};
    merge_warps<WholeBlock, S::kMergeRows>(mine, a.group, target, warp_parts, merge, static_cast<int>(threadIdx.x));
    if (in_pair) {
      merge_pair<Dim, S::kThreads>(a, row, partial);
    } else if (!whole) {
      __syncthreads();
      if (threadIdx.x == 0) merges = arrives_last(a.arrived + row, parts.count);
      __syncthreads();
      if (merges) merge_row<Dim, S::kThreads>(a, row, parts, merge);
    }
    ++row;
    row_begin = row_end;
  }
}

template <DataType Type, int Dim, int Box, bool Wide, Lists Kind>
void launch(const CUtensorMap& map, const Arguments& a, int blocks, Stream stream) {
  using S = Shape<Type, Dim, Box>;
  static_assert(S::kSharedBytes <= 227 * 1024 - 2048);
  auto* kernel = decode_kernel<Type, Dim, Box, Wide, Kind>;
  SLUICE_CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(S::kSharedBytes)));
  const LaunchShape shape{dim3(blocks), dim3(S::kThreads), S::kSharedBytes, a.paired ? 2 : 0};
  launch_overlapping(kernel, shape, stream, map, a);
}

template <Lists Kind, DataType Type, int Dim, int Box>
void launch_group(const CUtensorMap& map, const Arguments& a, int blocks, Stream stream) {
  if (a.group > 8) {
    launch<Type, Dim, Box, true, Kind>(map, a, blocks, stream);
  } else {
    launch<Type, Dim, Box, false, Kind>(map, a, blocks, stream);
  }
}

template <Lists Kind, DataType Type, int Dim>
void launch_page(int page, const CUtensorMap& map, const Arguments& a, int blocks, Stream stream) {
  if (page % kTileTokens == 0) {
    launch_group<Kind, Type, Dim, 16>(map, a, blocks, stream);
  } else {
    launch_group<Kind, Type, Dim, 8>(map, a, blocks, stream);
  }
}

template <Lists Kind, DataType Type>
void launch_dim(const PageLayout& layout, const CUtensorMap& map, const Arguments& a, int blocks, Stream stream) {
  switch (layout.head_dim) {
    case 64:
      return launch_page<Kind, Type, 64>(layout.page, map, a, blocks, stream);
    case 128:
      return launch_page<Kind, Type, 128>(layout.page, map, a, blocks, stream);
    default:
      return launch_page<Kind, Type, 256>(layout.page, map, a, blocks, stream);
  }
}

template <Lists Kind>
void launch_layout(const PageLayout& layout, const CUtensorMap& map, const Arguments& a, int blocks, Stream stream) {
  switch (layout.kv) {
    case DataType::kE4M3:
      return launch_dim<Kind, DataType::kE4M3>(layout, map, a, blocks, stream);
    case DataType::kE5M2:
      return launch_dim<Kind, DataType::kE5M2>(layout, map, a, blocks, stream);
    default:
      return launch_dim<Kind, DataType::kBF16>(layout, map, a, blocks, stream);
  }
}

// Each in a file of its own, as they take long to compile.
extern template void launch_layout<Lists::kWhole>(const PageLayout&, const CUtensorMap&, const Arguments&, int, Stream);
extern template void launch_layout<Lists::kMasked>(const PageLayout&, const CUtensorMap&, const Arguments&, int, Stream);
extern template void launch_layout<Lists::kLogits>(const PageLayout&, const CUtensorMap&, const Arguments&, int, Stream);

}  // namespace sluice::cuda::decode
