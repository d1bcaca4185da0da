#pragma once

#include "kernels/cuda/attention_device.cuh"

/// Which tiles of K and V a block and its warps attend to, and how they reach shared memory.
namespace sluice::cuda::decode {

inline constexpr int kTileTokens = 16;
inline constexpr uint64_t kEvictFirst = 0x12F0000000000000;  // L2 policy, as CUTLASS and cuda::access_property encode it
inline constexpr int kMostBlocks = 140;                      // multiprocessors

/// What a kernel of one head size is made of. A tile is K and V of 16 tokens, as the tensor copies lay it out: boxes of kBox
/// tokens; in a box K then V; in each, panels of 64 channels; in a panel a row of 128 bytes a token, its 16-byte chunks permuted
/// by the row (the 128-byte swizzle), so that eight rows of one chunk lie in different banks.
template <int Dim, int Box>
struct Shape {
  static constexpr int kWarps = Dim == 256 ? 4 : 8;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kHalfBytes = kTileTokens * Dim * 2;  // K or V of a tile
  static constexpr int kTileBytes = 2 * kHalfBytes;
  static constexpr int kStages = 192 * 1024 / (kWarps * kTileBytes);
  static constexpr int kMergeRows = 4;                       // heads that are merged at once
  static constexpr int kPartFloats = kMostBlocks * 16 + 16;  // what merging the stretches of a row needs
  static constexpr int kMergeFloats = kWarps * kMergeRows * Dim > kPartFloats ? kWarps* kMergeRows* Dim : kPartFloats;
  static constexpr size_t kSharedBytes =
      1024 + static_cast<size_t>(kWarps) * kStages * kTileBytes + kMergeFloats * sizeof(float) + kWarps * kStages * 8;

  /// Byte of 16-byte chunk `chunk` (8 channels) of `token` in a tile; of V if `value`.
  static __device__ __forceinline__ uint32_t offset(int value, int token, int chunk) {
    constexpr int kPanel = Box * 128;
    const int box = token / Box;
    const int row = token % Box;
    return box * (2 * Box * Dim * 2) + value * (Box * Dim * 2) + chunk / 8 * kPanel + row * 128 +
           (((chunk % 8) ^ (row % 8)) << 4);
  }
};

struct Arguments {
  const int32_t* pages;
  const int32_t* starts;
  const int32_t* tokens;
  const __nv_bfloat16* q;
  int64_t query_stride;  // numbers from sequence to sequence
  __nv_bfloat16* out;
  float* log_sums;
  float* partials;  // [blocks][2][group][dim + 2]
  int* arrived;     // [rows] stretches of a row that have ended
  int sequences;
  int kv_heads;
  int group;
  int page;
  bool per_head;
  float scale;  // of q . k, in base 2
};

/// Copies a box of tokens [token, token + Box) of one block, K and V, to shared memory.
__device__ __forceinline__ void copy_box(const CUtensorMap* map, uint32_t target, uint32_t barrier, int token, int block) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, %3, %3, "
      "%5}], "
      "[%2], %6;" ::"r"(target),
      "l"(map), "r"(barrier), "r"(0), "r"(token), "r"(block), "l"(kEvictFirst)
      : "memory");
}

__device__ __forceinline__ int tiles_of(int tokens) { return (tokens + kTileTokens - 1) / kTileTokens; }

/// The list of a row (sequence, KV head).
__device__ __forceinline__ int list_of(const Arguments& a, int row) { return a.per_head ? row : row / a.kv_heads; }
__device__ __forceinline__ int row_tokens(const Arguments& a, int row) { return __ldg(a.tokens + list_of(a, row)); }

/// What a block does: tiles [first, last) of all rows laid end to end.
struct Stretch {
  int first = 0;
  int last = 0;
  int length = 0;  // of every block's stretch but the last
  int row = 0;     // of `first`
  int row_begin = 0;
};

/// The output of a row without tokens, which has no tile.
inline __device__ void clear_row(const Arguments& a, int row, int dim) {
  for (int i = 0; i < a.group * dim; ++i) a.out[static_cast<int64_t>(row) * a.group * dim + i] = __float2bfloat16(0.0f);
  for (int i = 0; a.log_sums != nullptr && i < a.group; ++i) a.log_sums[static_cast<int64_t>(row) * a.group + i] = -INFINITY;
}

/// Lays all rows end to end and finds this block's stretch. Rows that are hardly longer than an even share get a block each,
/// which saves merging them.
template <int Threads, int Dim>
__device__ Stretch find_stretch(const Arguments& a, int rows) {
  __shared__ int warp_tiles[Threads / 32];
  __shared__ int warp_longest[Threads / 32];
  __shared__ int found_row;
  __shared__ int found_begin;
  const int per_thread = (rows + Threads - 1) / Threads;
  const int begin = min(rows, static_cast<int>(threadIdx.x) * per_thread);
  const int end = min(rows, begin + per_thread);
  int mine = 0;
  int longest = 0;
  for (int row = begin; row < end; ++row) {
    const int tiles = tiles_of(row_tokens(a, row));
    asm volatile("prefetch.global.L1 [%0];" ::"l"(a.starts + list_of(a, row)));
    if (tiles == 0 && row % gridDim.x == blockIdx.x) clear_row(a, row, Dim);
    mine += tiles;
    longest = max(longest, tiles);
  }
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  int sum = mine;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffU, sum, step);
    if (lane >= step) sum += other;
  }
  longest = __reduce_max_sync(0xffffffffU, longest);
  if (lane == 31) {
    warp_tiles[warp] = sum;
    warp_longest[warp] = longest;
  }
  __syncthreads();
  int before = sum - mine;
  int total = 0;
  longest = 0;
  for (int w = 0; w < Threads / 32; ++w) {
    if (w < warp) before += warp_tiles[w];
    total += warp_tiles[w];
    longest = max(longest, warp_longest[w]);
  }
  constexpr int kSpare = 8;
  const int blocks = static_cast<int>(gridDim.x);
  int length = max(1, (total + blocks - 1) / blocks);
  if (longest > length && longest <= length + kSpare && rows <= blocks) length = longest;
  const int first = static_cast<int>(blockIdx.x) * length;
  if (first >= before && first < before + mine) {
    int row = begin;
    int at = before;
    for (;; ++row) {
      const int tiles = tiles_of(row_tokens(a, row));
      if (first < at + tiles) break;
      at += tiles;
    }
    found_row = row;
    found_begin = at;
  }
  __syncthreads();
  return {first, min(total, first + length), length, found_row, found_begin};
}

/// Where the tiles of a warp lie in the pool. Its lanes look 32 tiles up at a time, each its own, and later copy them.
template <int Dim, int Box>
class Source {
 public:
  static constexpr int kBoxes = kTileTokens / Box;

  __device__ Source(const Arguments& a, const Stretch& stretch, int warp)
      : tile_(stretch.first + warp + static_cast<int>(threadIdx.x) % 32 * Shape<Dim, Box>::kWarps),
        row_(stretch.row),
        row_begin_(stretch.row_begin),
        row_end_(stretch.row_begin + tiles_of(row_tokens(a, stretch.row))) {
    look_up(a, stretch);
  }

  /// Copies tile number `index` of this warp to shared memory, if there is one. Called for 0, 1, 2 and so on, by all lanes.
  __device__ __forceinline__ void copy(const CUtensorMap* map, const Arguments& a, const Stretch& stretch, int index,
                                       uint32_t target, uint32_t barrier) {
    if (static_cast<int>(threadIdx.x) % 32 == index % 32 && tile_ < stretch.last) {
      barrier_expect(barrier, Shape<Dim, Box>::kTileBytes);
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        copy_box(map, target + box * (Shape<Dim, Box>::kTileBytes / kBoxes), barrier, token_[box], block_[box]);
      }
    }
    if (index % 32 == 31) {
      tile_ += 32 * Shape<Dim, Box>::kWarps;
      look_up(a, stretch);
    }
  }

 private:
  __device__ void look_up(const Arguments& a, const Stretch& stretch) {
    if (tile_ >= stretch.last) return;
    while (tile_ >= row_end_) {
      ++row_;
      row_begin_ = row_end_;
      row_end_ += tiles_of(row_tokens(a, row_));
    }
    const int list = list_of(a, row_);
    const int boxes_per_page = a.page / Box;
    const int last_page = (__ldg(a.tokens + list) + a.page - 1) / a.page - 1;
    const int32_t* pages = a.pages + __ldg(a.starts + list);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const int at = (tile_ - row_begin_) * kBoxes + box;
      // Past the end: any page, since its scores are masked.
      block_[box] = __ldg(pages + min(at / boxes_per_page, last_page)) * a.kv_heads + row_ % a.kv_heads;
      token_[box] = at % boxes_per_page * Box;
    }
  }

  int tile_;
  int row_;
  int row_begin_;
  int row_end_;
  int block_[kBoxes];
  int token_[kBoxes];
};

}  // namespace sluice::cuda::decode
