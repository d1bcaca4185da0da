#include "kernels/cuda/pages/page_copy.h"

#include <algorithm>

#include "kernels/cuda/runtime/runtime.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPairs = 256;  // of a launch: they travel as its parameters, without memory of their own

struct Pairs {
  int32_t sources[kPairs];
  int32_t targets[kPairs];
};

/// A block for each pair and layer.
__global__ __launch_bounds__(kThreads) void copy_kernel(const __grid_constant__ PageBlocks blocks,
                                                        const __grid_constant__ Pairs pairs) {
  std::byte* const layer = blocks.base + blockIdx.y * blocks.layer_stride;
  const auto* const source = reinterpret_cast<const uint4*>(layer + pairs.sources[blockIdx.x] * blocks.bytes);
  auto* const target = reinterpret_cast<uint4*>(layer + pairs.targets[blockIdx.x] * blocks.bytes);
  if (source == target) return;
#pragma unroll 4
  for (size_t i = threadIdx.x; i < blocks.bytes / sizeof(uint4); i += kThreads) target[i] = source[i];
}

/// The same, with zeros in place of the sources.
__global__ __launch_bounds__(kThreads) void clear_kernel(const __grid_constant__ PageBlocks blocks,
                                                         const __grid_constant__ Pairs pairs) {
  std::byte* const layer = blocks.base + blockIdx.y * blocks.layer_stride;
  auto* const target = reinterpret_cast<uint4*>(layer + pairs.targets[blockIdx.x] * blocks.bytes);
  for (size_t i = threadIdx.x; i < blocks.bytes / sizeof(uint4); i += kThreads) target[i] = {};
}

constexpr int kMoves = 128;  // of a launch
constexpr int kMoveThreads = 64;

struct Moves {
  TokenMove moves[kMoves];
};

/// A block for each token, layer and KV head.
__global__ __launch_bounds__(kMoveThreads) void move_kernel(const __grid_constant__ PageBlocks blocks,
                                                            const __grid_constant__ TokenRows rows,
                                                            const __grid_constant__ Moves list) {
  const TokenMove move = list.moves[blockIdx.x];
  if (blockIdx.z % move.heads != move.head) return;
  std::byte* const layer = blocks.base + blockIdx.y * blocks.layer_stride + blockIdx.z * rows.block_bytes;
  const std::byte* const from = layer + move.from_page * blocks.bytes + move.from_token * rows.bytes;
  std::byte* const to = layer + move.to_page * blocks.bytes + move.to_token * rows.bytes;
  const size_t words = rows.bytes / sizeof(uint32_t);
  for (size_t i = threadIdx.x; i < 2 * words; i += kMoveThreads) {
    const size_t at = (i < words ? rows.key_offset : rows.value_offset) + i % words * sizeof(uint32_t);
    *reinterpret_cast<uint32_t*>(to + at) = *reinterpret_cast<const uint32_t*>(from + at);
  }
}

}  // namespace

void clear_pages(const PageBlocks& blocks, std::span<const int32_t> pages, Stream stream) {
  while (!pages.empty()) {
    const size_t count = std::min<size_t>(pages.size(), kPairs);
    Pairs pairs;
    std::copy_n(pages.begin(), count, pairs.targets);
    clear_kernel<<<dim3(static_cast<unsigned>(count), static_cast<unsigned>(blocks.layers)), kThreads, 0, stream>>>(blocks,
                                                                                                                    pairs);
    SLUICE_CHECK_CUDA(cudaGetLastError());
    pages = pages.subspan(count);
  }
}

void move_tokens(const PageBlocks& blocks, const TokenRows& rows, std::span<const TokenMove> moves, Stream stream) {
  while (!moves.empty()) {
    const size_t count = std::min<size_t>(moves.size(), kMoves);
    Moves list;
    std::copy_n(moves.begin(), count, list.moves);
    const dim3 grid(static_cast<unsigned>(count), static_cast<unsigned>(blocks.layers), static_cast<unsigned>(rows.kv_heads));
    move_kernel<<<grid, kMoveThreads, 0, stream>>>(blocks, rows, list);
    SLUICE_CHECK_CUDA(cudaGetLastError());
    moves = moves.subspan(count);
  }
}

void copy_pages(const PageBlocks& blocks, std::span<const int32_t> sources, std::span<const int32_t> targets, Stream stream) {
  while (!sources.empty()) {
    const size_t count = std::min<size_t>(sources.size(), kPairs);
    Pairs pairs;
    std::copy_n(sources.begin(), count, pairs.sources);
    std::copy_n(targets.begin(), count, pairs.targets);
    copy_kernel<<<dim3(static_cast<unsigned>(count), static_cast<unsigned>(blocks.layers)), kThreads, 0, stream>>>(blocks, pairs);
    SLUICE_CHECK_CUDA(cudaGetLastError());
    sources = sources.subspan(count);
    targets = targets.subspan(count);
  }
}

}  // namespace sluice::cuda
