#include "kernels/cuda/selection/beside.h"

#include <algorithm>
#include <limits>
#include <string>

#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/device/pass_batch.h"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kWordPages = 32;               // pages of a word of a bitmap
constexpr int kTilePages = kWordPages * 32;  // pages that a warp lists at once
constexpr uint32_t kAll = 0xffffffffU;

/// What a warp lists at once.
struct Tile {
  uint16_t page[kTilePages];   // from the tile's first on
  int32_t beside[kTilePages];  // which entry of its sequence has its words; -1: it was selected
};

constexpr size_t bitmap_words(int pages) { return static_cast<size_t>(pages + kWordPages - 1) / kWordPages; }
constexpr size_t shared_bytes(int pages) { return kWarps * sizeof(Tile) + 2 * bitmap_words(pages) * sizeof(uint32_t); }
static_assert(shared_bytes(JoinedSelection::kMostPages) <= 227 * 1024);

/// Sum of `value` over the lanes up to this one.
__device__ __forceinline__ int sum_up_to_this_lane(int value) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(kAll, value, distance);
    if (lane >= distance) value += other;
  }
  return value;
}

/// The mask of the page at place `place` of a row's list, which is its sequence's `position`-th. `words`: of the tokens beside a
/// selection; null: it was selected. `visible`: the sequence's; null: all. It has `visible_words`.
__device__ __forceinline__ void write_mask(uint32_t* masks, int page, int place, const int32_t* words, const uint32_t* visible,
                                           int visible_words, int position) {
  const auto word = [&](int i) {
    const uint32_t own = words == nullptr ? kAll : static_cast<uint32_t>(words[i]);
    if (visible == nullptr) return own;
    const int64_t bit = int64_t{position} * page + 32 * i;
    return bit / 32 < visible_words ? own & visible[bit / 32] >> bit % 32 : 0;
  };
  if (page == 8) {
    reinterpret_cast<uint8_t*>(masks)[place] = static_cast<uint8_t>(word(0));
  } else if (page == 16) {
    reinterpret_cast<uint16_t*>(masks)[place] = static_cast<uint16_t>(word(0));
  } else {
    for (int i = 0; i < page / 32; ++i) masks[int64_t{place} * (page / 32) + i] = word(i);
  }
}

/// Pages of a bitmap's words before those that this warp lists, and of all words.
struct Counted {
  int before;
  int all;
};

template <typename WordAt>
__device__ __forceinline__ Counted count_words(int begin, int end, const WordAt& word_at, int* warp_counts) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int own = 0;
  for (int word = begin + lane; word < end; word += 32) own += __popc(word_at(word));
  own = __reduce_add_sync(kAll, own);
  if (lane == 0) warp_counts[warp] = own;
  __syncthreads();
  const int of_warp = lane < kWarps ? warp_counts[lane] : 0;
  return {static_cast<int>(__reduce_add_sync(kAll, lane < warp ? of_warp : 0)),
          static_cast<int>(__reduce_add_sync(kAll, of_warp))};
}

__global__ __launch_bounds__(kThreads) void join_kernel(const __grid_constant__ JoinedSelection a) {
  extern __shared__ uint32_t shared[];
  __shared__ int counts_of_all[kWarps];
  __shared__ int counts_beside[kWarps];
  auto* const tiles = reinterpret_cast<Tile*>(shared);
  uint32_t* const selected = shared + kWarps * sizeof(Tile) / sizeof(uint32_t);
  uint32_t* const beside = selected + bitmap_words(a.max_pages);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int row = static_cast<int>(blockIdx.x);
  const int sequence = row / a.kv_heads;
  const int entry = 1 + page_words(a.page);
  for (size_t word = thread; word < 2 * bitmap_words(a.max_pages); word += kThreads) selected[word] = 0;

  wait_for_earlier_kernels();
  const int length = max(a.lengths[sequence], 0);
  const int pages = min(static_cast<int>((int64_t{length} + a.page - 1) / a.page), a.max_pages);
  const int32_t* const page_indices = a.page_indices + a.page_indptr[sequence];
  const int32_t* const entries = a.beside + a.beside_indptr[sequence];
  const int beside_pages = (a.beside_indptr[sequence + 1] - a.beside_indptr[sequence]) / entry;
  const int visible_words = (a.visible_indptr[sequence + 1] - a.visible_indptr[sequence]) / a.visible_heads;
  const int visible_head = (row - sequence * a.kv_heads) % a.visible_heads;
  const uint32_t* const visible =
      visible_words > 0 ? a.visible + a.visible_indptr[sequence] + visible_head * visible_words : nullptr;
  const int selected_pages = a.selected_counts[row];
  const int32_t* const list = a.selected + row * a.stride;
  __syncthreads();

  for (int i = thread; i < selected_pages; i += kThreads) atomicOr(&selected[list[i] / kWordPages], 1U << list[i] % kWordPages);
  for (int i = thread; i < beside_pages; i += kThreads) {
    const int position = entries[int64_t{i} * entry];
    atomicOr(&beside[position / kWordPages], 1U << position % kWordPages);
  }
  __syncthreads();
  let_next_kernel_start();

  const int words = (pages + kWordPages - 1) / kWordPages;
  const int words_each = (words + kWarps - 1) / kWarps;
  const int begin = min(warp * words_each, words);
  const int end = min(begin + words_each, words);
  const Counted of_all = count_words(
      begin, end, [&](int word) { return selected[word] | beside[word]; }, counts_of_all);
  const Counted of_beside = count_words(
      begin, end, [&](int word) { return beside[word]; }, counts_beside);
  if (thread == 0) {
    const int newest = pages - 1;
    const bool has_newest =
        pages > 0 && ((selected[newest / kWordPages] | beside[newest / kWordPages]) >> newest % kWordPages & 1U) != 0;
    a.starts[row] = static_cast<int32_t>(row * a.stride);
    a.tokens[row] = static_cast<int32_t>(int64_t{of_all.all} * a.page - (has_newest ? int64_t{pages} * a.page - length : 0));
    a.counts[row] = of_all.all;
    a.mask_indptr[row] = static_cast<int32_t>(row * a.mask_stride);
    if (row + 1 == static_cast<int>(gridDim.x)) a.mask_indptr[row + 1] = static_cast<int32_t>((row + 1) * a.mask_stride);
    if (a.attended != nullptr) atomicAdd(a.attended, static_cast<unsigned long long>(of_all.all - selected_pages));
  }

  Tile& tile = tiles[warp];
  int before = of_all.before;
  int beside_before = of_beside.before;
  uint32_t* const masks = a.masks + row * a.mask_stride;
  for (int first = begin; first < end; first += 32) {
    const bool is_there = first + lane < end;
    const uint32_t in_selected = is_there ? selected[first + lane] : 0;
    const uint32_t in_beside = is_there ? beside[first + lane] : 0;
    const uint32_t in_any = in_selected | in_beside;
    const int up_to = sum_up_to_this_lane(__popc(in_any));
    const int beside_up_to = sum_up_to_this_lane(__popc(in_beside));
    int place = up_to - __popc(in_any);
    int number = beside_before + beside_up_to - __popc(in_beside);
    for (uint32_t left = in_any; left != 0; left &= left - 1, ++place) {
      const uint32_t bit = left & -left;
      tile.page[place] = static_cast<uint16_t>(lane * kWordPages + __ffs(left) - 1);
      tile.beside[place] = (in_selected & bit) != 0 ? -1 : number;
      if ((in_beside & bit) != 0) ++number;
    }
    __syncwarp();
    const int count = __shfl_sync(kAll, up_to, 31);
    for (int i = lane; i < count; i += 32) {
      const int position = first * kWordPages + tile.page[i];
      const int own = tile.beside[i];
      a.pages[row * a.stride + before + i] = page_indices[position];
      write_mask(masks, a.page, before + i, own < 0 ? nullptr : entries + int64_t{own} * entry + 1, visible, visible_words,
                 position);
    }
    before += count;
    beside_before += __shfl_sync(kAll, beside_up_to, 31);
    __syncwarp();
  }
}

}  // namespace

void join_beside(const JoinedSelection& joined, Stream stream) {
  const int64_t rows = int64_t{joined.sequences} * joined.kv_heads;
  if (rows <= 0) return;
  if (joined.max_pages > JoinedSelection::kMostPages)
    throw InternalError("tokens beside a selection of up to " + std::to_string(joined.max_pages) + " pages");
  if (rows > std::numeric_limits<int32_t>::max() / std::max<int64_t>({joined.stride, joined.mask_stride, 1})) {
    throw InternalError("the pages of " + std::to_string(rows) + " rows of " + std::to_string(joined.stride) +
                        " do not fit 32 bits");
  }
  SLUICE_CHECK_CUDA(cudaFuncSetAttribute(join_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(shared_bytes(JoinedSelection::kMostPages))));
  const LaunchShape shape{dim3(static_cast<unsigned>(rows)), dim3(kThreads), shared_bytes(joined.max_pages)};
  launch_overlapping(join_kernel, shape, stream, joined);
}

}  // namespace sluice::cuda
