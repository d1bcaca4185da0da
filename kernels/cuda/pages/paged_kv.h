#pragma once

#include <cstddef>

#include "kernels/cuda/primitives/tensor_map.h"
#include "scripting/graph/plan.h"

struct CUstream_st;

namespace sluice::cuda {

using Stream = CUstream_st*;

/// K and V of one layer in a pool in device memory: block (page, kv_head) lies at base + (page * kv_heads + kv_head) *
/// layout.bytes.
struct PagedKv {
  const std::byte* base = nullptr;
  PageLayout layout;  // bf16, e4m3 or e5m2; head_dim 64, 128 or 256; pages of 8 to 128 tokens
  int pages = 0;
  int kv_heads = 1;
};

/// For copies of `tokens` tokens of one block to shared memory: their K, or V, or both one behind the other (`both`). Coordinates
/// are (0, token, 0, K or V, block). In shared memory lie panels of 128 bytes of channels; in a panel a row of 128 bytes a token,
/// its 16-byte chunks permuted by the row (the 128-byte swizzle), so that eight rows of one chunk lie in different banks. Heads
/// of 64 one-byte channels make rows of 64 bytes, with the 64-byte swizzle. Throws InputError for a layout that CUDA attention
/// does not take.
TensorMap map_blocks(const PagedKv& kv, int tokens, bool both);

}  // namespace sluice::cuda
