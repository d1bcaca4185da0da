#pragma once

#include <cstdint>

#include "kernels/cuda/primitives/ring.cuh"
#include "scripting/graph/types.h"

/// Tiles of K and V in shared memory. Needs no header of CUDA's, so that generated kernels can have it, too.
namespace sluice::cuda::decode {

inline constexpr int kTileTokens = 16;
inline constexpr int kMostBlocks = 140;  // multiprocessors
/// Bytes of tiles that a block has asked for. A multiprocessor has room for half as many again, but memory is as fast with these,
/// and whatever else is read meanwhile, instructions included, waits for less.
inline constexpr int kUnderWay = 128 * 1024;

/// What a kernel of one type of KV and head size is made of. A tile is K and V of 16 tokens, as the tensor copies lay it out:
/// boxes of kBox tokens; in a box K then V; in each, panels of 128 bytes of channels; in a panel a row of 128 bytes a token, its
/// 16-byte chunks permuted by the row (the 128-byte swizzle), so that eight rows of one chunk lie in different banks. Where a
/// token has but 64 bytes, so have its rows (the 64-byte swizzle).
template <DataType Type, int Dim, int Box>
struct Shape {
  static constexpr int kElement = Type == DataType::kBF16 ? 2 : 1;
  static constexpr int kChunk = 16 / kElement;          // channels of 16 bytes
  static constexpr int kTokenBytes = Dim * kElement;    // K or V of a token
  static constexpr int kHalfBytes = Box * kTokenBytes;  // K or V of a box
  static constexpr int kTileBytes = 2 * kTileTokens * kTokenBytes;
  static constexpr int kWarps = kTokenBytes > 256 ? 4 : kTokenBytes < 128 ? 12 : 8;  // small tiles take as long as larger ones
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kStages = kUnderWay / (kWarps * kTileBytes);
  // Heads that are merged at once, a row of floats each; what the four threads of a row write side by side shifts the banks.
  static constexpr int kMergeRows = kWarps * Dim > 1024 ? 2 : 4;
  static constexpr int kMergeStride = Dim + 16 / kElement;
  static constexpr int kPartFloats = kMostBlocks * 16 * 2 + 16;  // what merging the stretches of a row needs
  static constexpr int kWarpFloats = kWarps * kMergeRows * kMergeStride;
  static constexpr int kMergeFloats = kWarpFloats > kPartFloats ? kWarpFloats : kPartFloats;
  static constexpr size_t kSharedBytes =
      1024 + static_cast<size_t>(kWarps) * kStages * kTileBytes + kMergeFloats * sizeof(float) + kWarps * kStages * 8;

  /// Byte of 16-byte chunk `chunk` of `token` in a tile; of V if `value`.
  static __device__ __forceinline__ uint32_t offset(int value, int token, int chunk) {
    constexpr int kRowBytes = kTokenBytes < 128 ? 64 : 128;
    constexpr int kRowChunks = kRowBytes / 16;
    const int row = token % Box;
    const int permuted = chunk % kRowChunks ^ row * kRowBytes / 128 % kRowChunks;
    return token / Box * (2 * kHalfBytes) + value * kHalfBytes + chunk / kRowChunks * (Box * kRowBytes) + row * kRowBytes +
           permuted * 16;
  }
};

/// Copies a box of tokens [token, token + Box) of one block, K and V, to shared memory; `map` is that of `map_blocks`
/// (paged_kv.h).
__device__ __forceinline__ void copy_box(const void* map, uint32_t target, uint32_t barrier, int token, int block) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, %3, %3, "
      "%5}], "
      "[%2], %6;" ::"r"(target),
      "l"(map), "r"(barrier), "r"(0), "r"(token), "r"(block), "l"(kEvictFirst)
      : "memory");
}

__device__ __forceinline__ int tiles_of(int tokens) { return (tokens + kTileTokens - 1) / kTileTokens; }

}  // namespace sluice::cuda::decode
