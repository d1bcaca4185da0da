#include "kernels/cuda/selection/selection.h"

#include <algorithm>
#include <limits>
#include <string>

#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

constexpr int kMostWarps = 16;
constexpr int kWordPages = 32;               // pages of a word of the bitmap
constexpr int kTilePages = kWordPages * 32;  // pages that a warp lists at once
constexpr int kBatch = 4;                    // loads that a thread has under way
constexpr uint32_t kAll = 0xffffffffU;
constexpr int kMostMergeBytes = Selection::kMostMergedPages / 8 + kMostWarps * kTilePages * static_cast<int>(sizeof(uint16_t));

/// A selection whose leaves are taken apart: what all windows keep together, and the lists.
struct Arguments {
  Selection to;  // its first `lists` leaves are those with lists
  int lists = 0;
  int first = 0;  // the most of any leaf
  int last = 0;
  int64_t max_tokens = 0;  // of a sequence
};

/// The pages of a row and where they go.
struct Row {
  const Selection& to;
  int64_t row;
  int length;  // tokens
  int pages;
  const int32_t* page_indices;  // [pages]

  __device__ Row(const Arguments& a, int index) : to(a.to), row(index) {
    const int sequence = index / to.kv_heads;
    length = static_cast<int>(min(static_cast<int64_t>(max(to.lengths[sequence], 0)), a.max_tokens));
    page_indices = to.page_indices + to.page_indptr[sequence];
    pages = static_cast<int>((int64_t{length} + to.page - 1) / to.page);
  }

  /// Writes entries [begin, end) of the row, `step` apart: position_of(entry), and the pool page there. Loads go in batches, as
  /// nothing else hides how long they take.
  template <typename PositionOf>
  __device__ void write(int begin, int end, int step, const PositionOf& position_of) const {
    int32_t* const positions = to.positions == nullptr ? nullptr : to.positions + row * to.stride;
    int32_t* const listed = to.pages + row * to.stride;
    for (int64_t base = begin; base < end; base += int64_t{kBatch} * step) {
      int32_t position[kBatch];
      int32_t pool_page[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int64_t entry = base + int64_t{i} * step;
        if (entry < end) position[i] = position_of(static_cast<int>(entry));
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (base + int64_t{i} * step < end) pool_page[i] = page_indices[position[i]];
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int64_t entry = base + int64_t{i} * step;
        if (entry >= end) break;
        listed[entry] = pool_page[i];
        if (positions != nullptr) positions[entry] = position[i];
      }
    }
  }

  /// What is known of the row as a whole; by one thread.
  __device__ void write_totals(int count, bool keeps_newest) const {
    const int missing = keeps_newest ? static_cast<int>(int64_t{pages} * to.page - length) : 0;
    to.starts[row] = static_cast<int32_t>(row * to.stride);
    to.tokens[row] = static_cast<int32_t>(int64_t{count} * to.page - missing);
    to.counts[row] = count;
    if (to.attended != nullptr) atomicAdd(to.attended, static_cast<unsigned long long>(count));
    if (to.available != nullptr) atomicAdd(to.available, static_cast<unsigned long long>(pages));
  }
};

/// Windows and at most one list, which lies between them: head, list, tail.
__device__ void write_in_line(const Arguments& a) {
  const SelectionLeaf& leaf = a.to.leaves[0];
  const int64_t index = blockIdx.x;
  const int32_t* const list = a.lists > 0 ? leaf.list + index * leaf.list_stride : nullptr;
  // The thread's first entry, before it is known whether the list is that long.
  const int64_t early = static_cast<int64_t>(threadIdx.x) - a.first;
  const int32_t early_entry = list != nullptr && early >= 0 && early < leaf.list_stride ? list[early] : 0;
  int listed = list != nullptr ? leaf.counts[index] : 0;

  const Row row(a, blockIdx.x);
  int head = a.first;
  int tail = a.last;
  if (int64_t{head} + tail >= row.pages) {
    head = row.pages;
    listed = tail = 0;
  }
  const int count = head + listed + tail;
  const auto position_of = [&](int entry) {
    if (entry < head) return entry;
    if (entry >= head + listed) return row.pages - (count - entry);
    return head + (entry == static_cast<int>(threadIdx.x) ? early_entry : list[entry - head]);
  };
  row.write(static_cast<int>(threadIdx.x), count, static_cast<int>(blockDim.x), position_of);
  // The last thread is the one with the least to do.
  if (threadIdx.x == blockDim.x - 1) row.write_totals(count, count > 0 && position_of(count - 1) == row.pages - 1);
}

/// The bits of the word of pages [begin, begin + 32) that stand for pages before `end`.
__device__ uint32_t bits_before(int64_t end, int64_t begin) {
  if (end <= begin) return 0;
  return end - begin >= kWordPages ? kAll : (1U << (end - begin)) - 1;
}

/// Sets the bits of pages that windows keep, and clears all others.
__device__ __forceinline__ void mark_windows(const Arguments& a, const Row& row, uint32_t* bitmap, int words, bool keeps_all) {
  for (int word = static_cast<int>(threadIdx.x); word < words; word += static_cast<int>(blockDim.x)) {
    const int64_t begin = int64_t{word} * kWordPages;
    const uint32_t present = bits_before(row.pages, begin);
    const uint32_t inner = bits_before(int64_t{row.pages} - a.last, begin) & ~bits_before(a.first, begin);
    bitmap[word] = keeps_all ? present : present & ~inner;
  }
}

/// Sets the bits of pages that lists name: `entries` of them in all lists, laid end to end.
__device__ __forceinline__ void mark_listed(const Arguments& a, uint32_t* bitmap, const int* list_counts, int64_t entries) {
  // Neighbours of a list often share a word: a thread takes some, so that few threads meet there.
  for (int64_t base = int64_t{kBatch} * static_cast<int>(threadIdx.x); base < entries;
       base += int64_t{kBatch} * static_cast<int>(blockDim.x)) {
    int32_t position[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      int64_t entry = base + i;
      if (entry >= entries) continue;
      int leaf = 0;
      while (entry >= list_counts[leaf]) entry -= list_counts[leaf++];
      const SelectionLeaf& from = a.to.leaves[leaf];
      position[i] = from.first + from.list[blockIdx.x * from.list_stride + entry];
    }
    int word = position[0] / kWordPages;
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (base + i >= entries) break;
      if (position[i] / kWordPages != word) {
        atomicOr(&bitmap[word], bits);
        word = position[i] / kWordPages;
        bits = 0;
      }
      bits |= 1U << position[i] % kWordPages;
    }
    atomicOr(&bitmap[word], bits);
  }
}

/// Words of the bitmap that a warp lists.
struct Stretch {
  int begin;
  int end;
};

/// Pages of this warp's stretch, and of those of the warps before it.
struct WarpCount {
  int own;
  int before;
};

/// Counts them; a barrier of the block.
__device__ __forceinline__ WarpCount count_stretch(const uint32_t* bitmap, const Stretch& stretch, int* warp_counts) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int own = 0;
  for (int word = stretch.begin + lane; word < stretch.end; word += 32) own += __popc(bitmap[word]);
  own = __reduce_add_sync(kAll, own);
  if (lane == 0) warp_counts[warp] = own;
  __syncthreads();
  const int of_warp = lane < warps ? warp_counts[lane] : 0;
  return {own, static_cast<int>(__reduce_add_sync(kAll, lane < warp ? of_warp : 0))};
}

/// Writes the pages of a warp's stretch in order, behind `before` others, by way of `tile`: [kTilePages].
__device__ __forceinline__ void write_stretch(const Row& row, const uint32_t* bitmap, const Stretch& stretch, uint16_t* tile,
                                              int before) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int first_word = stretch.begin; first_word < stretch.end; first_word += 32) {
    uint32_t word = first_word + lane < stretch.end ? bitmap[first_word + lane] : 0;
    int up_to = __popc(word);
    int place = -up_to;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(kAll, up_to, distance);
      if (lane >= distance) up_to += other;
    }
    for (place += up_to; word != 0; word &= word - 1) tile[place++] = static_cast<uint16_t>(lane * kWordPages + __ffs(word) - 1);
    __syncwarp();
    const int count = __shfl_sync(kAll, up_to, 31);
    row.write(before + lane, before + count, 32, [&](int entry) { return first_word * kWordPages + tile[entry - before]; });
    before += count;
    __syncwarp();
  }
}

/// Any leaves: a bit a page, then the pages whose bits are set, in order.
__device__ void merge(const Arguments& a) {
  extern __shared__ uint32_t bitmap[];  // [(max_pages + 31) / 32], then uint16_t [warps, kTilePages]
  __shared__ int list_counts[Selection::kMostLeaves];
  __shared__ int warp_counts[kMostWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int warp = thread / 32;

  if (thread < a.lists) list_counts[thread] = a.to.leaves[thread].counts[blockIdx.x];
  const Row row(a, blockIdx.x);
  const bool keeps_all = int64_t{a.first} + a.last >= row.pages;
  const int words = (row.pages + kWordPages - 1) / kWordPages;
  mark_windows(a, row, bitmap, words, keeps_all);
  __syncthreads();

  int64_t entries = 0;
  for (int leaf = 0; leaf < a.lists; ++leaf) entries += list_counts[leaf];
  if (keeps_all) entries = 0;
  mark_listed(a, bitmap, list_counts, entries);
  __syncthreads();

  let_next_kernel_start();

  const int words_each = (words + warps - 1) / warps;
  const int begin = min(warp * words_each, words);
  const Stretch stretch{begin, min(begin + words_each, words)};
  const WarpCount counted = count_stretch(bitmap, stretch, warp_counts);
  if (warp == warps - 1) {
    const int count = counted.before + counted.own;
    const int newest = row.pages - 1;
    if (thread % 32 == 0) row.write_totals(count, count > 0 && (bitmap[newest / kWordPages] >> newest % kWordPages & 1U) != 0);
  }
  auto* const tiles = reinterpret_cast<uint16_t*>(bitmap + (a.to.max_pages + kWordPages - 1) / kWordPages);
  write_stretch(row, bitmap, stretch, tiles + warp * kTilePages, counted.before);
}

template <bool kMerge>
__global__ __launch_bounds__(kMostWarps * 32) void finish_kernel(const __grid_constant__ Arguments arguments) {
  // Merging takes longer than the next kernel needs to start: it lets that one in halfway, so as not to share its time.
  if constexpr (!kMerge) let_next_kernel_start();
  wait_for_earlier_kernels();
  if constexpr (kMerge) {
    merge(arguments);
  } else {
    write_in_line(arguments);
  }
}

template <bool kMerge>
void launch(const Arguments& arguments, Stream stream) {
  const Selection& to = arguments.to;
  constexpr int kFewWarps = 8;
  const int warps = to.max_pages <= kFewWarps * kTilePages ? kFewWarps : kMostWarps;
  LaunchShape shape{dim3(to.sequences * to.kv_heads), dim3(warps * 32)};
  if constexpr (kMerge) {
    shape.shared_bytes = (to.max_pages + kWordPages - 1) / kWordPages * sizeof(uint32_t) + warps * kTilePages * sizeof(uint16_t);
    SLUICE_CHECK_CUDA(cudaFuncSetAttribute(finish_kernel<kMerge>, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostMergeBytes));
  }
  launch_overlapping(finish_kernel<kMerge>, shape, stream, arguments);
}

bool has_list(const SelectionLeaf& leaf) { return leaf.list != nullptr; }

}  // namespace

void finish_selection(const Selection& selection, Stream stream) {
  if (selection.leaf_count < 1 || selection.leaf_count > Selection::kMostLeaves)
    throw InternalError("a selection of " + std::to_string(selection.leaf_count) + " leaves");
  const int64_t rows = int64_t{selection.sequences} * selection.kv_heads;
  if (rows <= 0) return;
  if (rows - 1 > std::numeric_limits<int32_t>::max() / std::max<int64_t>(selection.stride, 1)) {
    throw InternalError("the pages of " + std::to_string(rows) + " rows of " + std::to_string(selection.stride) +
                        " do not fit 32 bits");
  }

  Arguments arguments;
  arguments.to = selection;
  arguments.max_tokens = int64_t{selection.max_pages} * selection.page;
  SelectionLeaf* const leaves = arguments.to.leaves;
  SelectionLeaf* const end = leaves + selection.leaf_count;
  arguments.lists = static_cast<int>(std::partition(leaves, end, has_list) - leaves);
  for (const SelectionLeaf* leaf = leaves; leaf < end; ++leaf) {
    arguments.first = std::max(arguments.first, leaf->first);
    arguments.last = std::max(arguments.last, leaf->last);
  }
  const bool in_line =
      arguments.lists == 0 || (arguments.lists == 1 && leaves->first == arguments.first && leaves->last == arguments.last);
  if (in_line) {
    launch<false>(arguments, stream);
    return;
  }
  if (selection.max_pages > Selection::kMostMergedPages)
    throw InternalError("a selection of several lists of up to " + std::to_string(selection.max_pages) + " pages");
  launch<true>(arguments, stream);
}

}  // namespace sluice::cuda
