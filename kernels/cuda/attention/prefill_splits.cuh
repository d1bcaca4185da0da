#pragma once

#include <algorithm>

#include "kernels/cuda/attention/prefill_lists.cuh"

/// Lists of tiles are split where there are few tiles of rows, of which the last see the most tokens: works are then many and
/// alike, as split-KV decode has them. What rows make of their splits is merged behind.
namespace sluice::cuda::prefill {

/// Of lists of a call; 1: they are whole. Rows with masks have short lists.
inline int splits_of(const PrefillShape& shape, const PrefillTables& tables, int dim, int kv_heads, int blocks) {
  constexpr int kMost = 8;
  constexpr int kWorks = 3;         // of a block, so that the last ones to end do so together
  constexpr int kFewestTiles = 16;  // of a split, which rows and what they make of it are moved for
  if (tables.lists == nullptr || tables.mask_indptr != nullptr) return 1;
  const int64_t works = std::max<int64_t>(1, most_row_tiles(shape) * kv_heads);
  const int64_t wanted = (int64_t{kWorks} * blocks + works - 1) / works;
  const int room = shape.most_tokens / (tile_tokens(dim) * kFewestTiles);
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, std::clamp(room, 1, kMost)));
}

/// Bytes of what rows make of a split, and its logarithms behind all of these.
inline size_t split_bytes(const PrefillShape& shape, int dim, int kv_heads) {
  return static_cast<size_t>(shape.rows) * kv_heads * shape.group * (dim * sizeof(__nv_bfloat16) + sizeof(float));
}

inline constexpr int kMergeThreads = 128;

/// A thread merges eight channels of a row of a head, as the logarithms of the sums of its splits weigh them.
template <int Dim>
__global__ void __launch_bounds__(kMergeThreads) merge_splits_kernel(const SplitArguments a) {
  constexpr int kEights = Dim / 8;
  const int heads = a.kv_heads * a.group;
  const int64_t place = (int64_t{blockIdx.x} * kMergeThreads + threadIdx.x) / kEights;
  const int eight = static_cast<int>(threadIdx.x) % kEights;
  const int first = __ldg(a.query_indptr);
  const int row = static_cast<int>(place / heads);
  if (row >= __ldg(a.query_indptr + a.sequences) - first) return;
  const int64_t stride = int64_t{a.splits.rows} * heads;
  float highest = -INFINITY;
  for (int split = 0; split < a.splits.count; ++split) highest = fmaxf(highest, __ldg(a.splits.logs + split * stride + place));
  float sum = 0;
  float merged[8] = {};
  for (int split = 0; split < a.splits.count; ++split) {
    const float log = __ldg(a.splits.logs + split * stride + place);
    if (log == -INFINITY) continue;  // what lies there may be anything
    const float weight = exp2f(log - highest);
    sum += weight;
    const uint4 loaded = __ldg(reinterpret_cast<const uint4*>(a.splits.out + (split * stride + place) * Dim) + eight);
    const uint32_t pairs[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      merged[2 * i] = __fmaf_rn(weight, __uint_as_float(pairs[i] << 16), merged[2 * i]);
      merged[2 * i + 1] = __fmaf_rn(weight, __uint_as_float(pairs[i] & 0xffff0000U), merged[2 * i + 1]);
    }
  }
  const float inverse = sum == 0 ? 0 : 1 / sum;
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = pack(merged[2 * i] * inverse, merged[2 * i + 1] * inverse);
  const int head = static_cast<int>(place % heads);
  auto* const to = reinterpret_cast<uint4*>(a.out + (first + row) * a.out_stride + head * Dim) + eight;
  *to = make_uint4(out[0], out[1], out[2], out[3]);
}

template <int Dim>
void merge_splits(const SplitArguments& a, Stream stream) {
  const int64_t threads = int64_t{a.splits.rows} * a.kv_heads * a.group * (Dim / 8);
  const auto blocks = static_cast<unsigned>((threads + kMergeThreads - 1) / kMergeThreads);
  merge_splits_kernel<Dim><<<blocks, kMergeThreads, 0, stream>>>(a);
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace sluice::cuda::prefill
