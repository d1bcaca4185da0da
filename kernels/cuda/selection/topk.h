#pragma once

#include <cstdint>

#include "kernels/cuda/selection/topk_plan.h"

struct CUstream_st;

namespace sluice::cuda {

using Stream = CUstream_st*;

// Exact selection of the best k of each row of scores. The order is total and that of kernels/cpu/selection/topk.h: higher score
// first, ties to the lower index, NaN below -inf; all NaN are equal and so are -0 and +0.

/// What selections of one owner of rows, such as a request, took last: lists of page indices, each `stride` long. Any content is
/// fine, also repeated or out of range (-1). Device memory.
struct HintBlock {
  int32_t* lists = nullptr;  // [lists, rows of the owner, stride]; null: there are none
  int64_t stride = 0;
};

/// Rows of scores and where their selections go; all pointers are device memory.
struct TopK {
  const float* scores = nullptr;  // [rows, stride]
  int64_t stride = 0;
  int rows = 0;
  int max_length = 0;                // no row is longer; what the plan was made for
  const int32_t* lengths = nullptr;  // [rows], 0 to max_length; null: all are max_length
  const int32_t* budgets = nullptr;  // [rows], at most max_budget, which is read in their place if this is null
  int max_budget = 0;

  /// Indices that may be among the best, from list `hint_list` of whoever a row belongs to: the first `hint_count` of them.
  const HintBlock* hints = nullptr;  // [rows / owner_rows], or null
  int owner_rows = 1;                // that follow each other
  int hint_list = 0;
  int hint_count = 0;
  bool keeps_hints = false;  // what is selected goes there, too, as far as there is room

  int32_t* selected = nullptr;  // [rows, selected_stride], ascending; what lies behind a row's count is left as it was
  int64_t selected_stride = 0;  // at least max_budget
  int32_t* counts = nullptr;    // [rows] min(length, budget); may be null
};

/// Selects from all rows in one launch, without workspace; may be captured in a graph, which then follows `lengths`, `budgets`
/// and `hints` as they change. Hints are kept by plans that begin with them (GVR), not by others. The same input gives the same
/// bits in every run and under every plan. Throws InternalError for a plan that there is no kernel for.
void select_top_k(const TopK& rows, const TopKPlan& plan, Stream stream);

/// How pages are drawn in approximate selections.
struct Draws {
  double tolerate = 0;              // share of a budget that may be inexact
  const uint64_t* seeds = nullptr;  // [rows / heads] of requests, in device memory; null: 0
  const int32_t* tokens = nullptr;  // [rows / heads] that they have, in device memory
  int heads = 1;                    // rows of a request
  int layer = 0;
  int first = 0;  // page of a row's first score
};

/// As `select_top_k`, approximately: what PageSelector::approx_top_k (kernels/cpu/selection/topk.h) takes of the same scores,
/// however many rows there are. Hints are not looked at.
void draw_top_k(const TopK& rows, const Draws& draws, Stream stream);

}  // namespace sluice::cuda
