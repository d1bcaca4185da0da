#pragma once

#include "kernels/cuda/pages/page_copy.h"

namespace sluice::cuda {

/// K and V of a group's pages, for copies of tokens whose text stands elsewhere.
struct ShiftedRows {
  PageBlocks blocks;
  TokenRows rows;
  DataType kv = DataType::kBF16;       // or e4m3, e5m2
  int head_dim = 64;                   // a multiple of 16 that divides 2048
  int page = 16;                       // tokens
  const float* frequencies = nullptr;  // [head_dim / 2] in device memory
};

/// CacheOperations::copy_shifted: one launch for all runs, layers and heads. `runs` lie in device memory.
void copy_shifted(const ShiftedRows& rows, const ShiftedRun* runs, int count, Stream stream);

}  // namespace sluice::cuda
