#include "kernels/cuda/attention/cover_attention.h"

#include <algorithm>
#include <string>

#include "kernels/cuda/attention/attention_device.cuh"
#include "kernels/cuda/attention/cover_tiles.cuh"
#include "kernels/cuda/attention/decode_merge.cuh"
#include "kernels/cuda/attention/decode_warps.cuh"
#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

using namespace decode;

/// Adds the parts of a row, in their order, and divides. By all threads of a block, once all are there.
template <int Dim, int Threads>
__device__ __forceinline__ void merge_parts(const CoverArguments& a, int row) {
  const int stride = part_floats(a.group, Dim);
  const float* const begin = a.partials + static_cast<int64_t>(row) * a.parts * stride;
  for (int i = 2 * static_cast<int>(threadIdx.x); i < a.group * Dim; i += 2 * Threads) {
    const int at = a.group * Dim + i / Dim;
    float highest = kMinusInfinity;
    for (int part = 0; part < a.parts; ++part) highest = fmaxf(highest, __ldcg(begin + part * stride + at));
    const float shift = highest == kMinusInfinity ? 0.0f : highest;
    float sum = 0;
    float2 value = {0, 0};
    for (int part = 0; part < a.parts; ++part) {
      const float* const from = begin + part * stride;
      const float weight = power(__ldcg(from + at) - shift);
      const float2 pair = __ldcg(reinterpret_cast<const float2*>(from + i));
      sum += weight * __ldcg(from + at + a.group);
      value.x += weight * pair.x;
      value.y += weight * pair.y;
    }
    const float inverse = sum > 0 ? __fdividef(1, sum) : 0;
    *reinterpret_cast<uint32_t*>(a.out + static_cast<int64_t>(row) * a.group * Dim + i) =
        pack(value.x * inverse, value.y * inverse);
    if (a.cover.log_sums != nullptr && i % Dim == 0) {
      a.cover.log_sums[static_cast<int64_t>(row) * a.group + i / Dim] = highest + log2f(sum);
    }
  }
}

/// A block has part blockIdx.x % parts of row blockIdx.x / parts.
template <DataType Type, int Dim, int Box, bool Wide, bool Shares>
__global__ void __launch_bounds__(Shape<Type, Dim, Box>::kThreads, 1)
    cover_kernel(const __grid_constant__ CUtensorMap map, const __grid_constant__ CoverArguments a) {
  using S = CoverShape<Type, Dim, Box, Wide>;
  using Summaries = typename S::Summaries;
  using Row = WarpRow<Type, Dim, Box, Wide>;
  constexpr int kEntries = Summaries::kEntries;
  extern __shared__ uint8_t raw[];
  uint8_t* const tiles = raw + (1024 - shared_address(raw) % 1024) % 1024;
  float* const merge = reinterpret_cast<float*>(tiles + S::kWarps * S::kStages * S::kSlotBytes);
  uint64_t* const barriers = reinterpret_cast<uint64_t*>(merge + S::kMergeFloats);
  uint32_t* const opened = reinterpret_cast<uint32_t*>(barriers + S::kWarps * S::kStages);  // a word a tile of summaries
  __shared__ WarpParts<Shape<Type, Dim, Box>> warp_parts;
  __shared__ bool merges;

  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const uint32_t ring_barriers = shared_address(barriers + warp * S::kStages);
  uint8_t* const ring = tiles + warp * S::kStages * S::kSlotBytes;
  if (threadIdx.x == 0) prefetch_map(&map);
  if (lane < S::kStages) barrier_init(ring_barriers + 8 * lane, 1);
  publish_barriers();
  __syncwarp();  // no other warp uses these barriers
  let_next_kernel_start();
  wait_for_earlier_kernels();

  const int row = static_cast<int>(blockIdx.x) / a.parts;
  const Part part = Part::of<kEntries>(a, row, static_cast<int>(blockIdx.x) % a.parts);
  CoverTiles<Type, Dim, Box, Wide> source(a, part, warp);
  const auto copy = [&](int slot) {
    source.copy(&map, a, part, shared_address(ring + slot * S::kSlotBytes), ring_barriers + 8 * slot);
  };
#pragma unroll 1
  for (int slot = 0; slot < S::kStages; ++slot) copy(slot);

  // Which pages of this part's tiles of summaries are opened.
  const int words = part.tile_end - part.tile_begin;
  for (int i = threadIdx.x; i < words; i += S::kThreads) opened[i] = 0;
  __syncthreads();
  const int count = __ldcg(a.cover.opened.counts + row);
  for (int i = threadIdx.x; i < count; i += S::kThreads) {
    const int page = __ldcg(a.cover.opened.positions + part.list + i);
    const int tile = page / kEntries - part.tile_begin;
    if (tile >= 0 && tile < words) atomicOr(opened + tile, 1U << page % kEntries);
  }
  __syncthreads();

  int slot = 0;
  uint32_t parity = 0;
  const auto next_slot = [&] {
    // The copy engine writes here next: after what this warp wrote, and after all its lanes have read.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    copy(slot);
    if (++slot == S::kStages) {
      slot = 0;
      parity ^= 1;
    }
  };
  Row mine(a.q + part.sequence * a.query_stride + part.head * a.group * Dim, a.group, a.scale);
  CoverRow<Row, Type, Dim> all;
  const SummaryLogits logits(a, row);
  const TokenLogits& kept = a.cover.logits;
  const auto kept_at = [&](int place, int token) -> typename Row::TileLogits {
    if (kept.numbers == nullptr) return {nullptr, 0};
    float* const numbers = kept.numbers + static_cast<int64_t>(row) * a.group * kept.stride + place * a.page + token;
    return {numbers, kept.stride, min(kTileTokens, a.page - token)};
  };

#pragma unroll 1
  for (int place = part.open_begin + warp; place < part.open_end; place += S::kWarps) {
    const int page = __ldcg(a.cover.opened.positions + part.list + place);
    const int tokens = page == part.pages - 1 ? part.last_tokens : a.page;
    const bool shares = Shares && part.has_summary(page);
    float weight[2] = {};
    if (shares) {
#pragma unroll
      for (int half = 0; half < Row::kHalves; ++half) weight[half] = logits.of(page, lane / 4 + 8 * half);
    }
#pragma unroll 1
    for (int token = 0; token < a.page; token += kTileTokens) {
      barrier_wait(ring_barriers + 8 * slot, parity);
      if (token < tokens)
        mine.attend_kept(ring + slot * S::kSlotBytes, min(tokens - token, kTileTokens), ~0U, a.group, kept_at(place, token));
      next_slot();
    }
    if constexpr (Shares) {
      if (shares) {
        all.add_as(mine, weight);
        if (kept.numbers != nullptr) {  // tokens have what their page weighs
#pragma unroll
          for (int half = 0; half < Row::kHalves; ++half) {
            const float sum = mine.sum(half);
            weight[half] = sum == 0 ? kMinusInfinity : weight[half] - mine.maximum(half) - log2f(sum);
          }
#pragma unroll 1
          for (int token = 0; token < tokens; token += kTileTokens) Row::shift_kept(weight, a.group, kept_at(place, token));
        }
      } else {
        all.add(mine);
      }
      mine.clear();
    }
  }
  if constexpr (!Shares) all.add(mine);

#pragma unroll 1
  for (int tile = part.tile_begin + warp; tile < part.tile_end; tile += S::kWarps) {
    const int first = tile * kEntries;
    const uint32_t hidden = opened[tile - part.tile_begin];
    const auto counts = [&](int entry) { return part.has_summary(first + entry) && (hidden >> entry & 1) == 0; };
    uint8_t* const values = ring + slot * S::kSlotBytes;
    const float* const products = reinterpret_cast<const float*>(values + Summaries::kBytes);
    barrier_wait(ring_barriers + 8 * slot, parity);
    attend_summaries<Summaries>(
        values, a.cover.summaries.type, counts,
        [&](int entry, int head) { return logits.of_tile(products, entry, first + entry, head); }, [] {}, all);
    next_slot();
  }

  const int64_t first_head = static_cast<int64_t>(row) * a.group;
  float* const partial = a.parts == 1 ? nullptr : a.partials + static_cast<int64_t>(blockIdx.x) * part_floats(a.group, Dim);
  float* const log_sums = a.cover.log_sums == nullptr ? nullptr : a.cover.log_sums + first_head;
  const RowTarget target{a.out + first_head * Dim, log_sums, partial};
  __syncthreads();
  merge_warps<WholeBlock, S::kMergeRows>(all, a.group, target, warp_parts, merge, static_cast<int>(threadIdx.x));
  if (a.cover.attended != nullptr && threadIdx.x == 0 && blockIdx.x % a.parts == 0) {
    const int entries = part.end_page - part.first_page - (Shares ? 0 : count);
    const int filled = min((entries + a.page - 1) / a.page, part.pages - count);
    if (filled > 0) atomicAdd(a.cover.attended, static_cast<unsigned long long>(filled));
  }
  if (a.parts == 1) return;
  __syncthreads();
  if (threadIdx.x == 0) merges = arrives_last(a.arrived + row, a.parts);
  __syncthreads();
  if (merges) merge_parts<Dim, S::kThreads>(a, row);
}

/// Words of bits that a part's tiles of summaries take.
template <DataType Type, int Dim>
int words_of(const CoverArguments& a) {
  constexpr int kEntries = SummaryTile<Type, Dim>::kEntries;
  const int tiles = (a.cover.most_pages + kEntries - 1) / kEntries + 1;
  return (tiles + a.parts - 1) / a.parts;
}

template <DataType Type, int Dim, int Box, bool Wide, bool Shares>
void launch(const CUtensorMap& map, const CoverArguments& a, int rows, Stream stream) {
  using S = CoverShape<Type, Dim, Box, Wide>;
  static_assert(S::kSharedBytes <= 200 * 1024);
  const size_t bytes = S::kSharedBytes + words_of<Type, Dim>(a) * sizeof(uint32_t);
  auto* kernel = cover_kernel<Type, Dim, Box, Wide, Shares>;
  SLUICE_CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  launch_overlapping(kernel, {dim3(rows * a.parts), dim3(S::kThreads), bytes}, stream, map, a);
}

template <DataType Type, int Dim, int Box, bool Wide>
void launch_shared(const CUtensorMap& map, const CoverArguments& a, int rows, Stream stream) {
  if (a.cover.shares) {
    launch<Type, Dim, Box, Wide, true>(map, a, rows, stream);
  } else {
    launch<Type, Dim, Box, Wide, false>(map, a, rows, stream);
  }
}

template <DataType Type, int Dim, int Box>
void launch_group(const CUtensorMap& map, const CoverArguments& a, int rows, Stream stream) {
  if (a.group > 8) {
    launch_shared<Type, Dim, Box, true>(map, a, rows, stream);
  } else {
    launch_shared<Type, Dim, Box, false>(map, a, rows, stream);
  }
}

template <DataType Type, int Dim>
void launch_page(const CUtensorMap& map, const CoverArguments& a, int rows, Stream stream) {
  if (a.page % kTileTokens == 0) {
    launch_group<Type, Dim, 16>(map, a, rows, stream);
  } else {
    launch_group<Type, Dim, 8>(map, a, rows, stream);
  }
}

template <DataType Type>
void launch_dim(int dim, const CUtensorMap& map, const CoverArguments& a, int rows, Stream stream) {
  switch (dim) {
    case 64:
      return launch_page<Type, 64>(map, a, rows, stream);
    case 128:
      return launch_page<Type, 128>(map, a, rows, stream);
    default:
      return launch_page<Type, 256>(map, a, rows, stream);
  }
}

/// Parts of each row, so that blocks fill the multiprocessors about evenly: as few as leave least of them idle at the end. What
/// parts leave has room for two of each multiprocessor's blocks.
int parts_of(int rows, int blocks) {
  int best = 1;
  const auto idle = [&](int parts) {
    const int waves = (rows * parts + blocks - 1) / blocks;
    return 1 - static_cast<double>(rows * parts) / (static_cast<double>(waves) * blocks);
  };
  for (int parts = 2; rows * parts <= 2 * blocks; ++parts) {
    if (idle(parts) < idle(best) - 0.02) best = parts;
  }
  return best;
}

/// The summaries as their groups weigh.
PageSummaries weighed(const PagedKv& kv, const DecodeShape& shape, const Cover& cover, Stream stream) {
  PageSummaries summaries = cover.summaries;
  if (cover.groups.pages == 1) return summaries;
  weigh_groups({.logits = summaries.logits,
                .bias = summaries.bias,
                .row_stride = summaries.row_stride,
                .bias_heads = summaries.bias_heads,
                .common_bias = summaries.common_bias,
                .attended = cover.opened.positions,
                .attended_counts = cover.opened.counts,
                .attended_stride = cover.opened.stride,
                .lengths = cover.lengths,
                .sequences = shape.sequences,
                .kv_heads = kv.kv_heads,
                .group = shape.group,
                .page = kv.layout.page,
                .most_pages = cover.most_pages,
                .scale = shape.scale},
               cover.groups, stream);
  summaries.logits = cover.groups.logits;
  summaries.row_stride = cover.groups.stride;
  summaries.bias = nullptr;
  summaries.common_bias = 0;
  return summaries;
}

}  // namespace

void attend_cover(const DecodeAttention& attention, const DecodeShape& shape, const Cover& cover, const void* q, void* out,
                  void* workspace, Stream stream) {
  const PagedKv& kv = attention.kv();
  if (shape.group < 1 || shape.group > 16) throw InternalError("a group of " + std::to_string(shape.group) + " query heads");
  const int rows = shape.sequences * kv.kv_heads;
  if (rows == 0) return;
  Cover grouped = cover;
  grouped.summaries = weighed(kv, shape, cover, stream);
  const CoverArguments a{
      .cover = grouped,
      .q = static_cast<const uint16_t*>(q),
      .query_stride = shape.query_stride > 0 ? shape.query_stride : int64_t{kv.kv_heads} * shape.group * kv.layout.head_dim,
      .out = static_cast<uint16_t*>(out),
      .partials = attention.partials_in(workspace, shape),
      .arrived = static_cast<int*>(workspace),
      .kv_heads = kv.kv_heads,
      .group = shape.group,
      .page = kv.layout.page,
      .parts = parts_of(rows, attention.blocks()),
      .scale = shape.scale * kLog2E};
  const CUtensorMap map = to_cuda(attention.map());
  switch (kv.layout.kv) {
    case DataType::kE4M3:
      return launch_dim<DataType::kE4M3>(kv.layout.head_dim, map, a, rows, stream);
    case DataType::kE5M2:
      return launch_dim<DataType::kE5M2>(kv.layout.head_dim, map, a, rows, stream);
    default:
      return launch_dim<DataType::kBF16>(kv.layout.head_dim, map, a, rows, stream);
  }
}

}  // namespace sluice::cuda
