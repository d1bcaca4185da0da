#include "kernels/cuda/selection/tokens.h"

#include <string>

#include "kernels/cuda/primitives/compact.cuh"
#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/selection/page_mask.cuh"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 512;

constexpr size_t shared_bytes(int64_t tokens) { return static_cast<size_t>((tokens + 31) / 32) * sizeof(uint32_t); }
static_assert(shared_bytes(TokenSelection::kMostTokens) <= 226 * 1024);

/// Sets bits [begin, end), by all threads.
__device__ void mark_range(uint32_t* bits, int begin, int end) {
  for (int word = begin / 32 + static_cast<int>(threadIdx.x); word * 32 < end; word += kThreads) {
    const int from = max(begin - word * 32, 0);
    const int to = min(end - word * 32, 32);
    if (to > from) atomicOr(&bits[word], (to == 32 ? ~0U : (1U << to) - 1) & ~((1U << from) - 1));
  }
}

/// By one thread.
__device__ void mark_page(uint32_t* bits, int begin, int end) {
  for (int word = begin / 32; word * 32 < end; ++word) {
    const int from = max(begin - word * 32, 0);
    const int to = min(end - word * 32, 32);
    atomicOr(&bits[word], (to == 32 ? ~0U : (1U << to) - 1) & ~((1U << from) - 1));
  }
}

__device__ void mark_leaf(const TokenSelection& a, int index, int row, int length, uint32_t* bits) {
  const SelectionLeaf& leaf = a.to.leaves[index];
  const int page = a.to.page;
  const int unit = a.of_tokens[index] ? 1 : page;
  const int all = (length + unit - 1) / unit;
  if (int64_t{leaf.first} + leaf.last >= all) {
    mark_range(bits, 0, length);
    return;
  }
  mark_range(bits, 0, leaf.first * unit);
  mark_range(bits, (all - leaf.last) * unit, length);
  if (leaf.list == nullptr) return;
  const int32_t* const list = leaf.list + row * leaf.list_stride;
  for (int i = static_cast<int>(threadIdx.x); i < leaf.counts[row]; i += kThreads) {
    const int place = leaf.first + list[i];
    if (a.of_tokens[index]) {
      atomicOr(&bits[place / 32], 1U << place % 32);
    } else {
      mark_page(bits, place * page, min((place + 1) * page, length));
    }
  }
}

/// A block for each row.
__global__ void __launch_bounds__(kThreads) token_kernel(const __grid_constant__ TokenSelection a) {
  extern __shared__ uint32_t bits[];
  const int row = static_cast<int>(blockIdx.x);
  const int sequence = row / a.to.kv_heads;
  const int page = a.to.page;
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const int length = static_cast<int>(min(int64_t{max(a.to.lengths[sequence], 0)}, int64_t{a.to.max_pages} * page));
  const int pages = (length + page - 1) / page;
  for (int word = static_cast<int>(threadIdx.x); word * 32 < pages * page; word += kThreads) bits[word] = 0;
  __syncthreads();
  for (int leaf = 0; leaf < a.to.leaf_count; ++leaf) mark_leaf(a, leaf, row, length, bits);
  __syncthreads();
  uint32_t* const masks = a.masks + row * a.mask_stride;
  int32_t* const positions = a.to.positions + row * a.to.stride;
  const auto word_of = [&](int position, int i) { return bits[(position * page + 32 * i) / 32] >> (position * page) % 32; };
  const auto has_any = [&](int position) {
    const uint32_t in_word = page < 32 ? (1U << page) - 1 : ~0U;
    uint32_t any = 0;
    for (int i = 0; i < page_words(page); ++i) any |= word_of(position, i) & in_word;
    return any != 0;
  };
  const int count = compact<kThreads>(0, pages, has_any, [&](int position, int place) {
    positions[place] = position;
    write_page_mask(masks, page, place, [&](int i) { return word_of(position, i); });
  });
  if (threadIdx.x != 0) return;
  a.to.counts[row] = count;
  if (a.to.attended != nullptr) atomicAdd(a.to.attended, static_cast<unsigned long long>(count));
  if (a.to.available != nullptr) atomicAdd(a.to.available, static_cast<unsigned long long>(pages));
}

}  // namespace

void select_tokens(const TokenSelection& selection, Stream stream) {
  const int64_t rows = int64_t{selection.to.sequences} * selection.to.kv_heads;
  const int64_t tokens = int64_t{selection.to.max_pages} * selection.to.page;
  if (rows <= 0) return;
  if (tokens > TokenSelection::kMostTokens) throw InternalError("a selection of up to " + std::to_string(tokens) + " tokens");
  SLUICE_CHECK_CUDA(cudaFuncSetAttribute(token_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(shared_bytes(TokenSelection::kMostTokens))));
  launch_overlapping(token_kernel, {dim3(static_cast<unsigned>(rows)), dim3(kThreads), shared_bytes(tokens)}, stream, selection);
}

}  // namespace sluice::cuda
