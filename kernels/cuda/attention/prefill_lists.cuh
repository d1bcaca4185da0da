#pragma once

#include <algorithm>

#include "kernels/cuda/attention/prefill_attention.h"
#include "kernels/cuda/attention/prefill_sights.cuh"

/// Which tiles of tokens the rows of a tile see, so that others are neither read nor multiplied, and which of them need a mask.
namespace sluice::cuda::prefill {

inline constexpr int kListThreads = 256;
inline constexpr int kListedAtOnce = 1024;  // tiles of tokens

/// What rows see of a tile of tokens: a bit for each box of which some row sees a token, and the bits of its entry.
struct Found {
  uint32_t boxes = 0;
  int partial = 0;

  static __device__ __forceinline__ Found of(uint32_t packed) { return {packed & 0xffff, static_cast<int>(packed >> 16)}; }
  __device__ __forceinline__ uint32_t packed() const { return boxes | static_cast<uint32_t>(partial) << 16; }
};

/// For a whole warp whose lanes hold four rows each, two of either warpgroup.
template <int Tokens>
__device__ __forceinline__ Found look_at(const OwnSights<4>& own, int tile) {
  Found found{};
  uint32_t any[Tokens / 32] = {};
  for (int warpgroup = 0; warpgroup < 2; ++warpgroup) {
    uint32_t all = ~0U;
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < Tokens / 32; ++i) {
        const uint32_t word = own.word(2 * warpgroup + half, tile * (Tokens / 32) + i);
        any[i] |= word;
        all &= word;
      }
    }
    found.partial |= __all_sync(0xffffffffU, all == ~0U) != 0 ? 0 : 1 << warpgroup;
  }
#pragma unroll
  for (int i = 0; i < Tokens / 32; ++i) {
    const uint32_t seen = __reduce_or_sync(0xffffffffU, any[i]);
#pragma unroll
    for (int box = 0; box < 4; ++box) found.boxes |= (seen >> (8 * box) & 255) != 0 ? 1U << (4 * i + box) : 0;
  }
  return found;
}

/// Writes the list of a tile of rows: one warp, of whose lanes each brings the next tile of tokens.
template <int Dim>
class ListWriter {
 public:
  __device__ __forceinline__ ListWriter(int32_t* list, int box_place, int last_tile)
      : list_(list), boxes_(list + box_place), last_tile_(last_tile) {}

  /// A lane's is tile `tile`. A row without a mask sees a beginning: of its tiles one at most is seen in part, and one alone is
  /// not gathered, so rows of gathered tiles have masks.
  __device__ __forceinline__ void add(int tile, Found found) {
    const int lane = threadIdx.x % 32;
    const unsigned before = (1U << lane) - 1;
    // Few boxes are gathered from several tiles. The last tile may have tokens that are none, which are cleared at the list's
    // end.
    const int boxes = __popc(found.boxes);
    const bool is_sparse = boxes > 0 && boxes <= S::kBoxes / 2 && tile != last_tile_;
    const bool is_dense = boxes > 0 && !is_sparse;
    const unsigned dense = __ballot_sync(0xffffffffU, is_dense);
    if (is_dense) list_[1 + dense_ + __popc(dense & before)] = Entry(tile, found.partial).bits;
    dense_ += __popc(dense);
    const unsigned sparse = __ballot_sync(0xffffffffU, is_sparse);
    if (sparse == 0) return;
    int end = is_sparse ? boxes : 0;  // of the boxes up to this lane's
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffU, end, step);
      if (lane >= step) end += other;
    }
    int32_t* to = boxes_ + gathered_ + end - boxes;
    for (uint32_t left = is_sparse ? found.boxes : 0; left != 0; left &= left - 1)
      *to++ = tile * S::kBoxes + __ffs(static_cast<int>(left)) - 1;
    gathered_ += __shfl_sync(0xffffffffU, end, 31);
    sparse_ += __popc(sparse);
    only_ = Entry(__shfl_sync(0xffffffffU, Entry(tile, found.partial).bits, __ffs(static_cast<int>(sparse)) - 1)).bits;
  }

  /// Rows that see nothing get the first tile, masked.
  __device__ __forceinline__ void end() {
    __syncwarp();
    const int lane = threadIdx.x % 32;
    const int tiles = sparse_ > 1 ? (gathered_ + S::kBoxes - 1) / S::kBoxes : sparse_;
    for (int box = gathered_ + lane; box < tiles * S::kBoxes; box += 32) boxes_[box] = -1;
    if (lane != 0) return;
    // The last of those that follow each other stays last.
    const int32_t last = dense_ > 0 ? list_[dense_] : 0;
    const int first = max(0, dense_ - 1);
    for (int i = 0; i < tiles; ++i) list_[1 + first + i] = sparse_ > 1 ? Entry::gathered(i).bits : only_;
    if (dense_ > 0) list_[dense_ + tiles] = last;
    if (dense_ + tiles == 0) list_[1] = Entry(0, 3).bits;
    list_[0] = max(dense_ + tiles, 1);
  }

 private:
  using S = Shape<Dim>;
  int32_t* list_;
  int32_t* boxes_;
  int last_tile_;
  int dense_ = 0;     // tiles
  int sparse_ = 0;    // those of few boxes
  int gathered_ = 0;  // their boxes
  int only_ = 0;      // the entry of one of them
};

/// A block lists the tiles of one tile of rows, but for the last in order. `a.kv_heads` is how many heads see something else.
template <int Dim>
__global__ void __launch_bounds__(kListThreads) list_kernel(const ListedArguments a, int32_t* lists) {
  constexpr int kTokens = Shape<Dim>::kTokens;
  __shared__ uint32_t found[kListedAtOnce];
  const int number = static_cast<int>(blockIdx.x);
  if (number >= count_works(a)) return;
  const Work work = find_work<Dim, true>(a, number);
  const int lane = threadIdx.x % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  OwnSights<4> own;
  for (int i = 0; i < 4; ++i) own.take(a, work, i, lane + 32 * i);
  const int tiles = (work.length + kTokens - 1) / kTokens;
  ListWriter<Dim> writer(lists + a.sights.list_place(work.place, work.head), a.sights.box_place, tiles - 1);
  for (int begin = 0; begin < tiles; begin += kListedAtOnce) {
    const int end = min(tiles, begin + kListedAtOnce);
    for (int tile = begin + warp; tile < end; tile += kListThreads / 32) {
      const uint32_t packed = look_at<kTokens>(own, tile).packed();
      if (lane == 0) found[tile - begin] = packed;
    }
    __syncthreads();
    for (int tile = begin + lane; warp == 0 && tile - lane < end; tile += 32) {
      writer.add(tile, Found::of(tile < end ? found[tile - begin] : 0));
    }
    __syncthreads();
  }
  if (warp == 0) writer.end();
}

/// Every sequence may leave a tile unfilled.
inline int64_t most_row_tiles(const PrefillShape& shape) {
  return static_cast<int64_t>(shape.rows) * shape.group / kTileRows + shape.sequences;
}

/// Numbers from the list of a tile of rows to its boxes, which lie at 16 bytes, and to the next list.
struct ListExtents {
  int box_place = 0;
  int stride = 0;

  ListExtents(const PrefillShape& shape, int dim) {
    const int tokens = dim == 256 ? Shape<256>::kTokens : Shape<128>::kTokens;
    static_assert(Shape<64>::kTokens == Shape<128>::kTokens);
    const int tiles = (std::max(1, shape.most_tokens) + tokens - 1) / tokens;
    box_place = (1 + tiles + 3) / 4 * 4;
    // Of a tile half of the boxes are gathered at most.
    stride = box_place + (tiles + 1) / 2 * (tokens / kBoxTokens);
  }
};

inline Sights sights_of(const PrefillShape& shape, const PrefillTables& tables, int dim) {
  const ListExtents extents(shape, dim);
  return {.slots = tables.slots,
          .mask_indptr = tables.mask_indptr,
          .masks = tables.masks,
          .mask_heads = tables.mask_heads,
          .lists = tables.lists,
          .list_stride = extents.stride,
          .box_place = extents.box_place};
}

}  // namespace sluice::cuda::prefill
