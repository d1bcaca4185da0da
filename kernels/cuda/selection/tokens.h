#pragma once

#include "kernels/cuda/selection/selection.h"

namespace sluice::cuda {

/// Tokens that leaves select, as the pages that have any and a mask of each. Rows, and what is not said here, are as Selection
/// has them. Device memory.
struct TokenSelection {
  /// Tokens of a sequence: a bit each in shared memory.
  static constexpr int kMostTokens = 7 << 18;

  /// `lists`, `first` and `last` of its leaves are of tokens where `of_tokens` says so. `pages`, `starts` and `tokens` are not
  /// written.
  Selection to;
  bool of_tokens[Selection::kMostLeaves] = {};
  uint32_t* masks = nullptr;  // [rows, mask_stride] a bit for each token of the pages, one page behind the other
  int64_t mask_stride = 0;
};

/// Merges the leaves of all rows in one launch, without workspace; may be captured in a graph. Takes part in programmatic
/// dependent launch. Throws InternalError for more tokens than a block can mark.
void select_tokens(const TokenSelection& selection, Stream stream);

}  // namespace sluice::cuda
