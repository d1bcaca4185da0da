#include "kernels/cuda/attention/cover_attention.h"

#include <algorithm>
#include <string>

#include "kernels/cuda/attention/attention_device.cuh"
#include "kernels/cuda/attention/cover_row.cuh"
#include "kernels/cuda/attention/decode_merge.cuh"
#include "kernels/cuda/attention/decode_warps.cuh"
#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

using namespace decode;

struct CoverArguments {
  Cover cover;
  const uint16_t* q;     // bf16
  int64_t query_stride;  // numbers from sequence to sequence
  uint16_t* out;         // bf16
  float* partials;       // [rows][parts][part_floats], of rows in parts
  int* arrived;          // [rows] parts that have ended
  int kv_heads;
  int group;
  int page;
  int parts;    // of a row
  float scale;  // of q . k, in base 2
};

/// Shared memory of a block: rings of slots, which hold a tile of tokens, or of summaries and, behind them, their logits; what
/// merging needs; barriers; and a word of bits for each tile of summaries.
template <DataType Type, int Dim, int Box, bool Wide>
struct CoverShape : Shape<Type, Dim, Box> {
  using S = Shape<Type, Dim, Box>;
  using Summaries = SummaryTile<Type, Dim>;
  static constexpr int kSummaryBytes =
      Summaries::kBytes + Summaries::kEntries * (Wide ? 16 : 8) * static_cast<int>(sizeof(float));
  static constexpr int kLarger = S::kTileBytes > kSummaryBytes ? S::kTileBytes : kSummaryBytes;
  static constexpr int kSlotBytes = (kLarger + 1023) / 1024 * 1024;
  static constexpr int kMostRingBytes = 180 << 10;  // of all warps
  static constexpr int kRoom = kMostRingBytes / (S::kWarps * kSlotBytes);
  static constexpr int kStages = S::kStages < kRoom ? S::kStages : kRoom;
  static constexpr size_t kSharedBytes =
      1024 + static_cast<size_t>(S::kWarps) * kStages * kSlotBytes + S::kMergeFloats * sizeof(float) + S::kWarps * kStages * 8;
};

// Numbers on their way to shared memory, for which all lanes ask: bulk copies of so short lines take longer to ask for.

__device__ __forceinline__ void copy_piece(uint32_t target, const std::byte* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_number(uint32_t target, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(target), "l"(from) : "memory");
}
/// The barrier waits for what this thread has asked for, besides who arrives.
__device__ __forceinline__ void wait_for_pieces(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/// What a block has of a row. Entries of the list of opened pages go to its warps in turn, and then so do tiles of summaries.
struct Part {
  int sequence, head;        // of K and V
  int pages, last_tokens;    // of the sequence, in its last page
  int first_page, end_page;  // that have summaries
  int open_begin, open_end;  // places in the list
  int tile_begin, tile_end;  // of summaries
  int64_t list;              // where the row's list begins

  template <int Entries>
  __device__ __forceinline__ static Part of(const CoverArguments& a, int row, int part) {
    Part own;
    const OpenedPages& opened = a.cover.opened;
    own.sequence = row / a.kv_heads;
    own.head = row % a.kv_heads;
    const int tokens = __ldg(a.cover.lengths + own.sequence);
    own.pages = (tokens + a.page - 1) / a.page;
    own.last_tokens = tokens - (own.pages - 1) * a.page;
    own.first_page = min(a.cover.summaries.first, own.pages);
    own.end_page = max(own.first_page, own.pages - a.cover.summaries.last);
    own.list = row * opened.stride;
    const int count = __ldcg(opened.counts + row);
    own.open_begin = share(count, part, a.parts);
    own.open_end = share(count, part + 1, a.parts);
    const int first_tile = own.first_page / Entries;
    const int tiles = own.end_page > own.first_page ? (own.end_page + Entries - 1) / Entries - first_tile : 0;
    own.tile_begin = first_tile + share(tiles, part, a.parts);
    own.tile_end = first_tile + share(tiles, part + 1, a.parts);
    return own;
  }
  __device__ __forceinline__ bool has_summary(int page) const { return page >= first_page && page < end_page; }

 private:
  static __device__ __forceinline__ int share(int count, int part, int parts) {
    return static_cast<int>(static_cast<int64_t>(count) * part / parts);
  }
};

/// The tiles of a warp, in the order in which it asks for them.
template <DataType Type, int Dim, int Box, bool Wide>
class CoverTiles {
 public:
  using S = CoverShape<Type, Dim, Box, Wide>;
  using Summaries = typename S::Summaries;

  __device__ __forceinline__ CoverTiles(const CoverArguments& a, const Part& part, int warp)
      : place_(part.open_begin + warp), summary_(part.tile_begin + warp) {
    look_up_pages(a, part);
    look_up_summaries(a, part);
  }

  /// Copies the next tile to shared memory, if there is one. By all lanes.
  __device__ __forceinline__ void copy(const CUtensorMap* map, const CoverArguments& a, const Part& part, uint32_t target,
                                       uint32_t barrier) {
    if (place_ < part.open_end) {
      copy_tokens(map, a, part, target, barrier);
    } else if (summary_ < part.tile_end) {
      copy_summaries(a, part, target, barrier);
    }
  }

 private:
  __device__ __forceinline__ void copy_tokens(const CUtensorMap* map, const CoverArguments& a, const Part& part, uint32_t target,
                                              uint32_t barrier) {
    constexpr int kBoxBytes = 2 * S::kHalfBytes;
    const int page = __shfl_sync(0xffffffffU, pages_, looked_);
    if (threadIdx.x % 32 == 0) {
      const int boxes = min(kTileTokens, a.page - token_) / Box;
      barrier_expect(barrier, boxes * kBoxBytes);
#pragma unroll
      for (int box = 0; box < kTileTokens / Box; ++box) {
        if (box >= boxes) break;
        copy_box(map, target + box * kBoxBytes, barrier, token_ + box * Box, page * a.kv_heads + part.head);
      }
    }
    token_ += kTileTokens;
    if (token_ < a.page) return;
    token_ = 0;
    place_ += S::kWarps;
    if (++looked_ == 32) look_up_pages(a, part);
  }

  __device__ __forceinline__ void copy_summaries(const CoverArguments& a, const Part& part, uint32_t target, uint32_t barrier) {
    const PageSummaries& summaries = a.cover.summaries;
    const int lane = threadIdx.x % 32;
    const int there = min(Summaries::kEntries, part.pages - summary_ * Summaries::kEntries);
    const float* const logits = summaries.logits +
                                (static_cast<int64_t>(part.sequence) * a.kv_heads + part.head) * summaries.row_stride +
                                static_cast<int64_t>(summary_) * Summaries::kEntries * a.group;
    for (int i = lane; i < there * a.group; i += 32) copy_number(target + Summaries::kBytes + i * 4, logits + i);
    if (summaries.states.blocks != nullptr) {
      write_states(a, part, there, target);
    } else if (summaries.type == DataType::kBF16) {
      copy_pieces<Summaries::kValueBytes>(a, part, there, target);
    } else {
      copy_pieces<Dim>(a, part, there, target);
    }
    wait_for_pieces(barrier);
    __syncwarp();
    if (lane == 0) barrier_arrive(barrier);
    summary_ += S::kWarps;
    look_up_summaries(a, part);
  }

  /// The first `there` values of a tile, of `Bytes` each.
  template <int Bytes>
  __device__ __forceinline__ void copy_pieces(const CoverArguments& a, const Part& part, int there, uint32_t target) const {
    constexpr int kPieces = Bytes / 16;
    const PageSummaries& summaries = a.cover.summaries;
    const std::byte* const base = summaries.values + static_cast<size_t>(part.head) * summaries.block_bytes;
#pragma unroll 4
    for (int i = 0; i < Summaries::kEntries * kPieces / 32; ++i) {
      const int at = 32 * i + static_cast<int>(threadIdx.x) % 32;
      const int entry = at / kPieces;
      const int block = __shfl_sync(0xffffffffU, block_, entry);
      const int piece = at % kPieces * 16;
      if (entry < there)
        copy_piece(target + entry * Summaries::kRowBytes + piece,
                   base + static_cast<size_t>(block) * summaries.page_stride + piece);
    }
  }

  /// The first `there` values of a tile, as bf16.
  __device__ __forceinline__ void write_states(const CoverArguments& a, const Part& part, int there, uint32_t target) const {
    const StateValues& states = a.cover.summaries.states;
    const StateBlock& block = states.blocks[part.sequence];
    const float* const values = block.values +
                                (states.first_block + part.head) * (states.page_numbers * block.capacity + states.fixed_numbers) +
                                states.offset * block.capacity + static_cast<int64_t>(summary_) * Summaries::kEntries * Dim;
    constexpr int kFours = Dim / 4;  // of a value
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x) % 32; i < there * kFours; i += 32) {
      const float* const four = values + 4 * i;  // states need not be aligned to more
      const uint32_t low = pack(__ldcg(four), __ldcg(four + 1));
      const uint32_t high = pack(__ldcg(four + 2), __ldcg(four + 3));
      const uint32_t to = target + i / kFours * Summaries::kRowBytes + i % kFours * 8;
      asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(low), "r"(high) : "memory");
    }
  }

  /// Of the next 32 opened pages each lane has one.
  __device__ __forceinline__ void look_up_pages(const CoverArguments& a, const Part& part) {
    looked_ = 0;
    const int place = place_ + static_cast<int>(threadIdx.x) % 32 * S::kWarps;
    if (place < part.open_end) pages_ = __ldcg(a.cover.opened.pages + part.list + place);
  }
  /// Of the next tile of summaries each lane has one.
  __device__ __forceinline__ void look_up_summaries(const CoverArguments& a, const Part& part) {
    const int at = summary_ * Summaries::kEntries + static_cast<int>(threadIdx.x) % 32;
    const PageSummaries& summaries = a.cover.summaries;
    if (summaries.states.blocks != nullptr) return;
    if (summary_ < part.tile_end && at < part.pages)
      block_ = __ldg(summaries.page_indices + __ldg(summaries.page_indptr + part.sequence) + at);
  }

  int place_;       // in the list of opened pages
  int token_ = 0;   // of that page
  int looked_ = 0;  // places since the last look
  int summary_;     // tile
  int pages_ = 0;   // this lane's of 32
  int block_ = 0;   // the page that has this lane's summary
};

/// What is known of summaries' weights: logits in base 2.
struct SummaryLogits {
  const float* logits;
  const float* bias;
  float scale;
  float common;
  int group;
  int bias_heads;

  __device__ __forceinline__ SummaryLogits(const CoverArguments& a, int row)
      : logits(a.cover.summaries.logits + row * a.cover.summaries.row_stride),
        bias(a.cover.summaries.bias == nullptr ? nullptr : a.cover.summaries.bias + row * a.cover.summaries.row_stride),
        scale(a.scale),
        common(a.cover.summaries.common_bias * kLog2E),
        group(a.group),
        bias_heads(a.cover.summaries.bias_heads) {}

  /// Of heads past the group's: those of its last.
  __device__ __forceinline__ float of(int page, int head) const {
    head = min(head, group - 1);
    return of_product(__ldcg(logits + static_cast<int64_t>(page) * group + head), page, head);
  }
  /// Of the page at place `entry` of a tile, whose products are in shared memory.
  __device__ __forceinline__ float of_tile(const float* products, int entry, int page, int head) const {
    head = min(head, group - 1);
    return of_product(products[entry * group + head], page, head);
  }

 private:
  __device__ __forceinline__ float of_product(float product, int page, int head) const {
    float logit = __fmaf_rn(product, scale, common);
    if (bias != nullptr) {
      logit = __fmaf_rn(__ldcg(bias + static_cast<int64_t>(page) * bias_heads + (bias_heads == 1 ? 0 : head)), kLog2E, logit);
    }
    return logit;
  }
};

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
