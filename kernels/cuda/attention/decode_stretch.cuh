#pragma once

#include <climits>

#include "kernels/cuda/attention/attention_device.cuh"
#include "kernels/cuda/attention/decode_tile.cuh"

/// Which tiles of K and V a block attends to.
namespace sluice::cuda::decode {

struct Arguments {
  const int32_t* pages;
  const int32_t* starts;
  const int32_t* tokens;
  const uint16_t* q;     // bf16
  int64_t query_stride;  // numbers from sequence to sequence
  uint16_t* out;         // bf16
  float* log_sums;
  float* partials;  // [blocks][2][part_floats]: values [group][dim], maxima [group], sums [group]
  int* arrived;     // [rows] stretches of a row that have ended
  int sequences;
  int kv_heads;
  int group;
  bool per_head;
  int64_t list_stride;  // 0: starts tell where lists begin
  bool ready;           // as PageLists::are_ready
  float scale;          // of q . k, in base 2
  Divisor by_kv_heads;
  Divisor by_blocks;
  int most_parts;              // blocks that there are for each row
  bool paired;                 // blocks are launched as clusters of two, which may have a row together
  Divisor by_page_boxes;       // boxes of a page
  const int32_t* mask_indptr;  // [lists + 1] in masks, or null: every list is seen whole
  const uint32_t* masks;       // of a list without words, too
  int mask_heads;              // masks of a list, which KV heads that share it have in turn
  float* logits;               // [rows, group, logit_stride] as TokenLogits has them
  int64_t logit_stride;
};

/// What a stretch leaves of a row: a multiple of four numbers.
__host__ __device__ constexpr int part_floats(int group, int dim) { return (group * (dim + 2) + 3) / 4 * 4; }

/// The list of a row (sequence, KV head).
__device__ __forceinline__ int list_of(const Arguments& a, int row) { return a.per_head ? row : a.by_kv_heads.quotient(row); }
__device__ __forceinline__ int row_tokens(const Arguments& a, int row) { return a.tokens[list_of(a, row)]; }

__device__ __forceinline__ int64_t start_of(const Arguments& a, int list) {
  return a.list_stride > 0 ? list * a.list_stride : a.starts[list];
}

/// What a block does: tiles [first, last), where those of all rows are counted on.
struct Stretch {
  int first;
  int last;
  int length;  // of every block's stretch but the last, or the last of each row (`parts`)
  int row;     // of `first`
  int row_begin;
  int parts =
      0;  // every row has so many blocks of its own, the last of which may have less than `length`; 0: blocks go on across rows
};

/// Tiles of a block's stretch, of `total`: an even share, or whole rows, where these are hardly more, which saves merging them.
__device__ __forceinline__ int stretch_length(const Arguments& a, int total, int longest, int rows) {
  const int blocks = static_cast<int>(gridDim.x);
  const int length = max(1, a.by_blocks.quotient(total + blocks - 1));
  const int whole = (a.by_blocks.quotient(rows - 1) + 1) * longest;
  // Measured on an H100: with a block for each of 64 rows, 24 tiles take as long as 12 and merging two parts.
  const int spare = rows > blocks ? min(16, length / 16) : a.most_parts == 2 ? 12 : 8;
  return whole > length && whole <= length + spare ? whole : length;
}

/// Neither is negative, the divisor not 0, the quotient below 2^21: rounded it is off by one at most.
__device__ __forceinline__ int small_quotient(int number, int divisor) {
  const int quotient = __float2int_rz(__fdividef(static_cast<float>(number), static_cast<float>(divisor)));
  const int rest = number - quotient * divisor;
  return quotient + (rest >= divisor ? 1 : 0) - (rest < 0 ? 1 : 0);
}

/// A block's stretch where all rows have as many tiles. Rows have blocks of their own where those do hardly more than an even
/// share: a block that ends one row and begins another merges twice.
__device__ __forceinline__ Stretch even_stretch(const Arguments& a, int rows, int tiles) {
  constexpr int kSpare = 3;  // tiles that merging once more takes
  const int block = static_cast<int>(blockIdx.x);
  const int total = rows * tiles;
  const int length = stretch_length(a, total, tiles, rows);
  if (a.most_parts > 1 && length < tiles) {
    const int own = small_quotient(tiles + a.most_parts - 1, a.most_parts);
    if (own <= length + kSpare) {
      const int parts = small_quotient(tiles + own - 1, own);
      const int row = small_quotient(block, parts);
      const int first = row * tiles + (block - row * parts) * own;
      if (row >= rows) return {total, total, own, 0, 0, parts};
      return {first, min((row + 1) * tiles, first + own), own, row, row * tiles, parts};
    }
  }
  const int first = block * length;
  const int row = small_quotient(min(first, total), tiles);
  return {first, min(total, first + length), length, row, row * tiles};
}

/// The output of a row without tokens, which has no tile.
inline __device__ void clear_row(const Arguments& a, int row, int dim) {
#pragma unroll 1
  for (int i = 0; i < a.group * dim; ++i) a.out[static_cast<int64_t>(row) * a.group * dim + i] = 0;
#pragma unroll 1
  for (int i = 0; a.log_sums != nullptr && i < a.group; ++i) a.log_sums[static_cast<int64_t>(row) * a.group + i] = -INFINITY;
}

/// Tiles of each of the rows [first, end), which have the same list. Also asks for where that begins, and clears their output if
/// it is empty.
template <int Dim>
__device__ __forceinline__ int begin_rows(const Arguments& a, int list, int first, int end) {
  if (a.list_stride == 0) asm volatile("prefetch.global.L1 [%0];" ::"l"(a.starts + list));
  const int tiles = tiles_of(a.tokens[list]);
#pragma unroll 1
  for (int row = first; tiles == 0 && row < end; ++row) {
    if (a.by_blocks.remainder(row) == static_cast<int>(blockIdx.x)) clear_row(a, row, Dim);
  }
  return tiles;
}

__device__ __forceinline__ int sum_of_lanes_up_to_this(int value) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffU, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

/// Lays the rows of at most 32 lists end to end and finds this block's stretch; one warp, a lane a list.
template <int Dim>
__device__ __forceinline__ Stretch find_stretch_of_few(const Arguments& a, int lists, int rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int of_list = a.per_head ? 1 : a.kv_heads;  // rows
  const int tiles = lane < lists ? begin_rows<Dim>(a, lane, lane * of_list, (lane + 1) * of_list) : 0;
  const int longest = __reduce_max_sync(0xffffffffU, tiles);
  if (longest > 0 && __all_sync(0xffffffffU, lane >= lists || tiles == longest)) return even_stretch(a, rows, longest);
  const int end = sum_of_lanes_up_to_this(tiles * of_list);
  const int total = __shfl_sync(0xffffffffU, end, 31);
  const int length = stretch_length(a, total, longest, rows);
  const int first = static_cast<int>(blockIdx.x) * length;
  const int list = max(0, __ffs(static_cast<int>(__ballot_sync(0xffffffffU, first < end))) - 1);
  const int list_begin = __shfl_sync(0xffffffffU, end - tiles * of_list, list);
  const int row_tiles = max(1, __shfl_sync(0xffffffffU, tiles, list));
  const int before = a.per_head ? 0 : (first - list_begin) / row_tiles;  // rows of the list
  return {first, min(total, first + length), length, list * of_list + before, list_begin + before * row_tiles};
}

/// The same for any number of rows, by all threads together.
template <int Threads, int Dim>
__device__ __forceinline__ Stretch find_stretch_of_many(const Arguments& a, int rows) {
  __shared__ int warp_tiles[Threads / 32];
  __shared__ int warp_longest[Threads / 32];
  __shared__ int warp_shortest[Threads / 32];
  __shared__ int found_row;
  __shared__ int found_begin;
  const int per_thread = (rows + Threads - 1) / Threads;
  const int begin = min(rows, static_cast<int>(threadIdx.x) * per_thread);
  const int end = min(rows, begin + per_thread);
  int mine = 0;
  int longest = 0;
  int shortest = INT_MAX;
#pragma unroll 1
  for (int row = begin; row < end; ++row) {
    const int tiles = begin_rows<Dim>(a, list_of(a, row), row, row + 1);
    mine += tiles;
    longest = max(longest, tiles);
    shortest = min(shortest, tiles);
  }
  const int sum = sum_of_lanes_up_to_this(mine);
  const int warp = threadIdx.x / 32;
  longest = __reduce_max_sync(0xffffffffU, longest);
  shortest = __reduce_min_sync(0xffffffffU, shortest);
  if (threadIdx.x % 32 == 31) {
    warp_tiles[warp] = sum;
    warp_longest[warp] = longest;
    warp_shortest[warp] = shortest;
  }
  __syncthreads();
  int before = sum - mine;
  int total = 0;
  longest = 0;
  shortest = INT_MAX;
#pragma unroll
  for (int w = 0; w < Threads / 32; ++w) {
    if (w < warp) before += warp_tiles[w];
    total += warp_tiles[w];
    longest = max(longest, warp_longest[w]);
    shortest = min(shortest, warp_shortest[w]);
  }
  if (longest > 0 && shortest == longest) return even_stretch(a, rows, longest);
  const int length = stretch_length(a, total, longest, rows);
  const int first = static_cast<int>(blockIdx.x) * length;
  if (first >= before && first < before + mine) {
    int row = begin;
    int at = before;
#pragma unroll 1
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

/// This block's stretch of all rows laid end to end. Where lists are few, one warp asks for their lengths: all blocks ask the
/// cache for the same ones at the same time.
template <int Threads, int Dim>
__device__ __forceinline__ Stretch find_stretch(const Arguments& a, int rows) {
  const int lists = a.per_head ? rows : a.sequences;
  if (lists > 32) return find_stretch_of_many<Threads, Dim>(a, rows);
  __shared__ Stretch found;
  if (threadIdx.x < 32) {
    const Stretch stretch = find_stretch_of_few<Dim>(a, lists, rows);
    if (threadIdx.x == 0) found = stretch;
  }
  __syncthreads();
  return found;
}

}  // namespace sluice::cuda::decode
