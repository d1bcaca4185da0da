#include "kernels/cuda/attention/decode_attention.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "kernels/cuda/attention/decode_merge.cuh"
#include "kernels/cuda/attention/decode_row.cuh"
#include "kernels/cuda/attention/decode_source.cuh"
#include "kernels/cuda/attention/decode_warps.cuh"
#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

using namespace decode;

/// Which tokens of a list count.
class ListMask {
 public:
  __device__ __forceinline__ ListMask(const Arguments& a, int row) {
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
  const uint32_t* words_;  // null: all
};

/// All do.
struct Unmasked {
  __device__ __forceinline__ Unmasked(const Arguments&, int) {}
  __device__ __forceinline__ uint32_t tile(int) const { return 0; }
};

/// `Masked`: where lists have masks.
template <DataType Type, int Dim, int Box, bool Wide, bool Masked>
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
  // All of the above overlaps the end of the kernel before; nothing that it wrote may be counted on earlier than here.
  let_next_kernel_start();
  wait_for_earlier_kernels();
  guess.ask(a);
  const Stretch stretch = find_stretch<S::kThreads, Dim>(a, rows);
  if (stretch.first >= stretch.last) return;

  Source<S, Box> source(a, stretch, warp, guess);
  int asked = 0;  // tiles of this warp
  const auto copy = [&](int slot) {
    source.copy(&map, a, stretch, asked, shared_address(ring + slot * S::kTileBytes), ring_barriers + 8 * slot);
    ++asked;
  };
#pragma unroll 1
  for (int slot = 0; slot < kStages; ++slot) copy(slot);

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
    std::conditional_t<Masked, ListMask, Unmasked> mask(a, row);

    for (; tile_index < min(row_end, stretch.last); tile_index += S::kWarps) {
      const uint32_t counting = mask.tile(tile_index - row_begin);  // is asked for while the tile is on its way
      barrier_wait(ring_barriers + 8 * slot, parity);
      const int left = tokens - (tile_index - row_begin) * kTileTokens;
      if constexpr (Masked) {
        mine.attend_masked(ring + slot * S::kTileBytes, left, counting);
      } else {
        mine.attend(ring + slot * S::kTileBytes, left);
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

template <DataType Type, int Dim, int Box, bool Wide, bool Masked>
void launch(const CUtensorMap& map, const Arguments& a, int blocks, Stream stream) {
  using S = Shape<Type, Dim, Box>;
  static_assert(S::kSharedBytes <= 227 * 1024 - 2048);
  auto* kernel = decode_kernel<Type, Dim, Box, Wide, Masked>;
  SLUICE_CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(S::kSharedBytes)));
  const LaunchShape shape{dim3(blocks), dim3(S::kThreads), S::kSharedBytes, a.paired ? 2 : 0};
  launch_overlapping(kernel, shape, stream, map, a);
}

template <DataType Type, int Dim, int Box, bool Wide>
void launch_masked(const CUtensorMap& map, const Arguments& a, int blocks, Stream stream) {
  if (a.mask_indptr != nullptr) {
    launch<Type, Dim, Box, Wide, true>(map, a, blocks, stream);
  } else {
    launch<Type, Dim, Box, Wide, false>(map, a, blocks, stream);
  }
}

template <DataType Type, int Dim, int Box>
void launch_group(const CUtensorMap& map, const Arguments& a, int blocks, Stream stream) {
  if (a.group > 8) {
    launch_masked<Type, Dim, Box, true>(map, a, blocks, stream);
  } else {
    launch_masked<Type, Dim, Box, false>(map, a, blocks, stream);
  }
}

template <DataType Type, int Dim>
void launch_page(int page, const CUtensorMap& map, const Arguments& a, int blocks, Stream stream) {
  if (page % kTileTokens == 0) {
    launch_group<Type, Dim, 16>(map, a, blocks, stream);
  } else {
    launch_group<Type, Dim, 8>(map, a, blocks, stream);
  }
}

template <DataType Type>
void launch_layout(const PageLayout& layout, const CUtensorMap& map, const Arguments& a, int blocks, Stream stream) {
  switch (layout.head_dim) {
    case 64:
      return launch_page<Type, 64>(layout.page, map, a, blocks, stream);
    case 128:
      return launch_page<Type, 128>(layout.page, map, a, blocks, stream);
    default:
      return launch_page<Type, 256>(layout.page, map, a, blocks, stream);
  }
}

/// Tokens that a tensor copy brings.
int box_tokens(int page) { return page % kTileTokens == 0 ? kTileTokens : 8; }

}  // namespace

DecodeAttention::DecodeAttention(const PagedKv& kv)
    : kv_(kv),
      blocks_(std::min(multiprocessors(), decode::kMostBlocks)),
      map_(map_blocks(kv, box_tokens(kv.layout.page), true)) {}

size_t DecodeAttention::counter_bytes(const DecodeShape& shape) const {
  return (static_cast<size_t>(shape.sequences) * kv_.kv_heads * sizeof(int) + 255) / 256 * 256;
}

size_t DecodeAttention::workspace_bytes(const DecodeShape& shape) const {
  const size_t partials = static_cast<size_t>(blocks_) * 2 * decode::part_floats(shape.group, kv_.layout.head_dim);
  return counter_bytes(shape) + partials * sizeof(float);
}

float* DecodeAttention::partials_in(void* workspace, const DecodeShape& shape) const {
  return reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + counter_bytes(shape));
}

void DecodeAttention::run(const DecodeShape& shape, const PageLists& lists, const void* q, void* out, float* log_sums,
                          void* workspace, Stream stream) const {
  if (shape.group < 1 || shape.group > 16) throw InternalError("a group of " + std::to_string(shape.group) + " query heads");
  const size_t rows = static_cast<size_t>(shape.sequences) * kv_.kv_heads;
  const Arguments a{
      .pages = lists.pages,
      .starts = lists.starts,
      .tokens = lists.tokens,
      .q = static_cast<const uint16_t*>(q),
      .query_stride = shape.query_stride > 0 ? shape.query_stride : int64_t{kv_.kv_heads} * shape.group * kv_.layout.head_dim,
      .out = static_cast<uint16_t*>(out),
      .log_sums = log_sums,
      .partials = partials_in(workspace, shape),
      .arrived = static_cast<int*>(workspace),
      .sequences = shape.sequences,
      .kv_heads = kv_.kv_heads,
      .group = shape.group,
      .per_head = lists.per_head,
      .list_stride = lists.stride,
      .scale = shape.scale * kLog2E,
      .by_kv_heads = Divisor(kv_.kv_heads),
      .by_blocks = Divisor(blocks_),
      .most_parts = blocks_ / static_cast<int>(std::max<size_t>(rows, 1)),
      .paired = blocks_ % 2 == 0 && blocks_ / 2 >= static_cast<int>(rows) && blocks_ / 3 < static_cast<int>(rows),
      .by_page_boxes = Divisor(kv_.layout.page / box_tokens(kv_.layout.page)),
      .mask_indptr = lists.mask_indptr,
      .masks = lists.masks,
      .mask_heads = lists.mask_heads};
  const CUtensorMap map = to_cuda(map_);
  switch (kv_.layout.kv) {
    case DataType::kE4M3:
      return launch_layout<DataType::kE4M3>(kv_.layout, map, a, blocks_, stream);
    case DataType::kE5M2:
      return launch_layout<DataType::kE5M2>(kv_.layout, map, a, blocks_, stream);
    default:
      return launch_layout<DataType::kBF16>(kv_.layout, map, a, blocks_, stream);
  }
}

}  // namespace sluice::cuda
