#include "kernels/cuda/selection/beside.h"

#include <algorithm>
#include <limits>
#include <string>

#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/cuda/selection/page_mask.cuh"
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
  static constexpr uint16_t kNone = 0xffff;
  uint16_t page[kTilePages];      // from the tile's first on; so are all of these counted
  uint16_t selected[kTilePages];  // its place among the selected, or kNone
  uint16_t beside[kTilePages];    // which entry of its sequence has its words, or kNone
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

/// What counts of a page that is its sequence's `position`-th: those of `own(i)`, 32 tokens each, that are visible. `visible`:
/// the sequence's words; null: all are.
template <class Own>
__device__ __forceinline__ uint32_t visible_of(const Own& own, int i, int page, const uint32_t* visible, int visible_words,
                                               int position) {
  if (visible == nullptr) return own(i);
  const int64_t bit = int64_t{position} * page + 32 * i;
  return bit / 32 < visible_words ? own(i) & visible[bit / 32] >> bit % 32 : 0;
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
  __shared__ int counts_selected[kWarps];
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
  const Counted of_selected = count_words(
      begin, end, [&](int word) { return selected[word]; }, counts_selected);
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
  int selected_before = of_selected.before;
  int beside_before = of_beside.before;
  uint32_t* const masks = a.masks + row * a.mask_stride;
  const uint32_t* const selected_masks = a.selected_masks == nullptr ? nullptr : a.selected_masks + row * a.mask_stride;
  for (int first = begin; first < end; first += 32) {
    const bool is_there = first + lane < end;
    const uint32_t in_selected = is_there ? selected[first + lane] : 0;
    const uint32_t in_beside = is_there ? beside[first + lane] : 0;
    const uint32_t in_any = in_selected | in_beside;
    const int up_to = sum_up_to_this_lane(__popc(in_any));
    const int selected_up_to = sum_up_to_this_lane(__popc(in_selected));
    const int beside_up_to = sum_up_to_this_lane(__popc(in_beside));
    int place = up_to - __popc(in_any);
    int rank = selected_up_to - __popc(in_selected);
    int number = beside_up_to - __popc(in_beside);
    for (uint32_t left = in_any; left != 0; left &= left - 1, ++place) {
      const uint32_t bit = left & -left;
      tile.page[place] = static_cast<uint16_t>(lane * kWordPages + __ffs(left) - 1);
      tile.selected[place] = static_cast<uint16_t>((in_selected & bit) != 0 ? rank++ : Tile::kNone);
      tile.beside[place] = static_cast<uint16_t>((in_beside & bit) != 0 ? number++ : Tile::kNone);
    }
    __syncwarp();
    const int count = __shfl_sync(kAll, up_to, 31);
    for (int i = lane; i < count; i += 32) {
      const int position = first * kWordPages + tile.page[i];
      const int in_list = tile.selected[i] == Tile::kNone ? -1 : selected_before + tile.selected[i];
      const int in_entries = tile.beside[i] == Tile::kNone ? -1 : beside_before + tile.beside[i];
      const auto own = [&](int w) {
        const uint32_t near = in_entries < 0 ? 0 : static_cast<uint32_t>(entries[int64_t{in_entries} * entry + 1 + w]);
        if (in_list < 0) return near;
        return near | (selected_masks == nullptr ? kAll : read_page_mask(selected_masks, a.page, in_list, w));
      };
      a.positions[row * a.stride + before + i] = position;
      a.pages[row * a.stride + before + i] = page_indices[position];
      write_page_mask(masks, a.page, before + i,
                      [&](int w) { return visible_of(own, w, a.page, visible, visible_words, position); });
    }
    before += count;
    selected_before += __shfl_sync(kAll, selected_up_to, 31);
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
