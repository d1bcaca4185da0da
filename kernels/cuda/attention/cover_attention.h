#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/decode_attention.h"
#include "kernels/cuda/attention/page_groups.h"
#include "kernels/cuda/codegen/arguments.h"

namespace sluice::cuda {

/// Pages of decode rows that are attended to token by token, in device memory. A row is sequence * kv_heads + head.
struct OpenedPages {
  const int32_t* positions = nullptr;  // [rows, stride] among a sequence's pages, ascending
  const int32_t* pages = nullptr;      // [rows, stride] the same as pool pages
  const int32_t* counts = nullptr;     // [rows]
  int64_t stride = 0;
};

/// Values that sequences keep for their pages by themselves, float32, which are attended to as bf16: [pages, dim] of a KV head h
/// values + (first_block + h) * (page_numbers * capacity + fixed_numbers) + offset * capacity of the sequence's block.
struct StateValues {
  const StateBlock* blocks = nullptr;  // [sequences]; null: values are not kept so
  int64_t first_block = 0;             // of the layer's first KV head
  int64_t page_numbers = 0;            // of all states of a page
  int64_t fixed_numbers = 0;           // of states without pages
  int64_t offset = 0;                  // numbers of a page before these
};

/// What stands for the other pages, one key and one value each, in device memory.
struct PageSummaries {
  const std::byte* values = nullptr;  // [dim] of page p and KV head h at values + p * page_stride + h * block_bytes
  DataType type = DataType::kBF16;    // of values: bf16, e4m3 or e5m2
  size_t page_stride = 0;             // bytes, multiples of 16
  size_t block_bytes = 0;
  StateValues states = {};                // in place of `values`
  const int32_t* page_indptr = nullptr;   // [sequences] of the pages that have them
  const int32_t* page_indices = nullptr;  // oldest first
  const float* logits = nullptr;          // [pages, group] of a row: q . k, not scaled; the next row's row_stride further
  const float* bias = nullptr;  // [pages, bias_heads] of a row, added to the scaled logits; the next row_stride further; or null
  int64_t row_stride = 0;
  int bias_heads = 1;     // the group, or 1: all heads have the same
  float common_bias = 0;  // added to all logits
  int first = 0;          // pages of a sequence that have no summary: the first, ...
  int last = 0;           // ... and the last
};

struct Cover {
  OpenedPages opened;
  PageSummaries summaries;
  /// Of an opened page that has a summary this says what the page weighs, and its tokens share that by a softmax of their own;
  /// else they weigh what they weigh.
  bool shares = false;
  PageGroups groups = {};
  const int32_t* lengths = nullptr;        // [sequences] tokens
  int most_pages = 0;                      // of a sequence
  unsigned long long* attended = nullptr;  // gets the pages that as many entries as there are summaries would fill; may be null
  /// Of the tokens of opened pages, places being those in `opened`: beside `log_sums` they say what the tokens weigh among all
  /// entries.
  TokenLogits logits = {};
  float* log_sums = nullptr;  // [rows, group]; not null where logits are kept
};

/// Decode attention under a cover: one softmax over the tokens of opened pages and the summaries of all others (LuKA, sections 3
/// and 4). q, out: bf16 [sequences, kv_heads * group, dim], as `attention` has K and V.
///
/// One kernel. A block has a row, or an equal part of it where rows are few: a part of its opened pages and a part of its
/// summaries. Each warp streams pages, then summaries, through a ring of its own. The keys of summaries are not read: the index
/// stage has their logits. A kernel before it weighs groups of pages, where there are any. Parts are merged by the block that
/// ends last, in their order. `workspace` is as DecodeAttention::workspace_bytes has it.
void attend_cover(const DecodeAttention& attention, const DecodeShape& shape, const Cover& cover, const void* q, void* out,
                  void* workspace, Stream stream);

}  // namespace sluice::cuda
