#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

struct CUstream_st;

namespace sluice::cuda {

using Stream = CUstream_st*;

/// The pages of all layers of a pool: page `p` of layer `l` is the `bytes` (a multiple of 16) at base + l * layer_stride + p *
/// bytes.
struct PageBlocks {
  std::byte* base = nullptr;
  size_t bytes = 0;
  size_t layer_stride = 0;
  int layers = 1;
};

/// Copies page sources[i] over targets[i] in every layer; both lists lie in host memory, and are read before this returns.
void copy_pages(const PageBlocks& blocks, std::span<const int32_t> sources, std::span<const int32_t> targets, Stream stream);

}  // namespace sluice::cuda
