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

}  // namespace

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
