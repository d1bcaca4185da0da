#pragma once

#include <algorithm>
#include <bit>

#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/products/decode_matmul.h"
#include "kernels/cuda/products/decode_matmul_block.cuh"
#include "kernels/cuda/runtime/runtime.h"

/// What kernels that multiply few rows take of a GPU, for the host that launches them.
namespace sluice::cuda::decode_matmul {

inline int ceiling(int64_t number, int64_t divisor) { return static_cast<int>((number + divisor - 1) / divisor); }

/// Rows of x in a slot: 8, 16, 32 or 64.
inline int padded(int64_t rows) { return std::max(8, static_cast<int>(std::bit_ceil(static_cast<uint64_t>(rows)))); }

inline int warps_of(const WeightCut& cut) { return cut.outputs / 16; }
inline unsigned threads_of(const WeightCut& cut) { return 32 * (warps_of(cut) + 2); }

/// What a block takes for a chunk of the weight, a chunk of x, and the sums that other blocks of its cluster send.
inline size_t stage_bytes(const WeightCut& cut) { return cut.outputs * size_t{kChunk} * 2; }
inline size_t slot_bytes(int padded_rows) { return padded_rows * size_t{kChunk} * 2; }
inline size_t part_bytes(int padded_rows, const WeightCut& cut) {
  return size_t{16} * padded_rows * 4 * (warps_of(cut) / cut.split * (cut.split - 1));
}
/// All of it, as Places lays it out.
inline size_t shared_bytes(int padded_rows, const WeightCut& cut, int stages, int slots) {
  const int barriers = stages + slots + warps_of(cut);
  return 1024 + stages * stage_bytes(cut) + slots * slot_bytes(padded_rows) + part_bytes(padded_rows, cut) +
         static_cast<size_t>(barriers) * Places<8>::kBarriers;
}

inline LaunchShape launch_shape(const WeightCut& cut, int clusters, size_t bytes) {
  return {.blocks = static_cast<unsigned>(clusters * cut.split),
          .threads = threads_of(cut),
          .shared_bytes = bytes,
          .cluster = cut.split};
}

/// Clusters that the GPU holds at a time.
template <class... Parameters>
int most_clusters(void (*kernel)(Parameters...), const WeightCut& cut, size_t bytes) {
  cudaLaunchAttribute attribute = cluster_attribute(cut.split);
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(cut.split);
  config.blockDim = threads_of(cut);
  config.dynamicSmemBytes = bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  SLUICE_CHECK_CUDA(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
  return clusters;
}

/// What a launch is told of the product and how it is cut; not what becomes of the sums.
inline void set_shape(Arguments& arguments, const Matrix& x, const Matrix& weight, const WeightCut& cut, int clusters) {
  arguments.rows = static_cast<int>(x.rows);
  arguments.outputs = static_cast<int>(weight.rows);
  arguments.chunks = ceiling(weight.columns, kChunk);
  arguments.split_bits = std::countr_zero(static_cast<unsigned>(cut.split));
  arguments.clusters = clusters;
  arguments.tiles = ceiling(weight.rows, cut.outputs);
  arguments.rounds = ceiling(arguments.tiles, clusters);
  arguments.warps = warps_of(cut);
}

}  // namespace sluice::cuda::decode_matmul
