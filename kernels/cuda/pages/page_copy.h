#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/device/page_pool.h"

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

/// Fills the pages with zeros in every layer; the list lies in host memory, and is read before this returns.
void clear_pages(const PageBlocks& blocks, std::span<const int32_t> pages, Stream stream);

/// K and V of a token and KV head in its page: rows of `bytes` (a multiple of 4), of which those of token t begin at
/// head * block_bytes + key_offset + t * bytes, and with value_offset.
struct TokenRows {
  size_t block_bytes = 0;
  size_t key_offset = 0;
  size_t value_offset = 0;
  size_t bytes = 0;
  int kv_heads = 1;
};

/// Copies K and V of tokens in every layer and head; the list lies in host memory, and is read before this returns.
void move_tokens(const PageBlocks& blocks, const TokenRows& rows, std::span<const TokenMove> moves, Stream stream);

}  // namespace sluice::cuda
