#pragma once

#include "kernels/cuda/attention/attention_device.cuh"
#include "kernels/cuda/attention/cover_attention.h"
#include "kernels/cuda/attention/cover_row.cuh"

/// What a block of attention under a cover has of a row, and how its tiles come to shared memory.
namespace sluice::cuda::decode {

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

}  // namespace sluice::cuda::decode
