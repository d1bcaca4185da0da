#pragma once

#include <cstdint>

#include "kernels/cuda/runtime/runtime.h"

namespace sluice::cuda {

/// Pages that have one summary together while none of them is open (AttentionSource::group_pages), in device memory. Rows are
/// (sequence, KV head); lists of positions among a sequence's pages ascend.
struct PageGroups {
  int pages = 1;                           // of a group, from a multiple of it on; 1: there are none
  bool counts = false;                     // a group weighs as many as its pages
  bool shares = false;                     // pages of an open group share what it weighs
  int first = 0;                           // pages of a sequence that are of no group: the first, ...
  int last = 0;                            // ... and the last
  const int32_t* opened = nullptr;         // [rows, opened_stride]: their groups are open; null: nobody names any
  const int32_t* opened_counts = nullptr;  // [rows]
  int64_t opened_stride = 0;
  float* logits = nullptr;  // [rows, stride]: room for [pages, heads] of a row
  int64_t stride = 0;
};

/// What `weigh_groups` is told of the summaries of rows, in device memory: [pages, group] of a row each.
struct WeighedPages {
  const float* logits = nullptr;  // q . k, not scaled; the next row's row_stride further
  const float* bias = nullptr;    // [pages, bias_heads], added to the scaled logits; or null
  int64_t row_stride = 0;
  int bias_heads = 1;
  float common_bias = 0;
  const int32_t* attended = nullptr;  // [rows, attended_stride] pages that are attended to token by token: their groups are open
  const int32_t* attended_counts = nullptr;
  int64_t attended_stride = 0;
  const int32_t* lengths = nullptr;  // [sequences] tokens
  int sequences = 0;
  int kv_heads = 1;
  int group = 1;
  int page = 16;
  int most_pages = 0;
  float scale = 1;  // of q . k
};

/// Writes to groups.logits what, scaled, each page's summary weighs with its group, so that it stands for logits and biases. A
/// block a row; takes part in programmatic dependent launch.
void weigh_groups(const WeighedPages& pages, const PageGroups& groups, Stream stream);

}  // namespace sluice::cuda
