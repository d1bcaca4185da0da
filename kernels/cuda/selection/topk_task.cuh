#pragma once

#include "kernels/cuda/selection/topk.h"

namespace sluice::cuda::topk {

/// Whether every row begins at 16 bytes, so that four scores can be read at once.
inline bool are_aligned(const TopK& rows) {
  return rows.stride % 4 == 0 && reinterpret_cast<uintptr_t>(rows.scores) % (4 * sizeof(float)) == 0;
}

/// The row that a block selects from, `blocks` to a row.
struct Task {
  int row;
  int length;
  int k;  // 0 to length
  const float* scores;
  int32_t* selected;

  __device__ Task(const TopK& rows, int blocks) : row(blockIdx.x / blocks) {
    length = min(max(rows.lengths != nullptr ? rows.lengths[row] : rows.max_length, 0), rows.max_length);
    const int budget = min(rows.budgets != nullptr ? rows.budgets[row] : rows.max_budget, rows.max_budget);
    k = min(max(budget, 0), length);
    scores = rows.scores + row * rows.stride;
    selected = rows.selected + row * rows.selected_stride;
  }

  /// Writes how many are selected, and them, too, if they are none or all: whether they were.
  template <int kThreads>
  __device__ bool is_done(const TopK& rows, int blocks, int block) const {
    if (rows.counts != nullptr && block == 0 && threadIdx.x == 0) rows.counts[row] = k;
    if (k != length && k != 0) return false;
    for (int i = block * kThreads + threadIdx.x; i < k; i += blocks * kThreads) selected[i] = i;
    return true;
  }
};

}  // namespace sluice::cuda::topk
