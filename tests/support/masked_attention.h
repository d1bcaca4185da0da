#pragma once

#include <vector>

#include "kernels/device.h"

namespace sluice::testing {

/// Attention of rows that do not see all that the cache holds, on a device, beside float64.
struct MaskedAttention {
  struct Sequence {
    std::vector<int> slots;  // of its rows, ascending
    int length = 1;          // slots in use
    bool decoding = false;
    bool masked = true;         // each row sees random slots, sometimes none; else those up to its own
    bool in_stretches = false;  // masked: of stretches of slots all rows see everything, or nothing, or what each draws
    bool in_patches = false;    // masked: the same, but stretches that anybody sees are of a few slots
    int stride = 0;  // masked: beside the last slots every one that lies a multiple of this before a row's, but for holes
  };

  int kv_heads = 2;
  int group = 2;
  int head_dim = 64;
  int page = 16;
  DataType kv = DataType::kBF16;
  int mask_heads = 1;  // masks of a row, which KV heads have in turn
  int row_stride = 0;  // GroupPages::row_stride, whatever rows see
  std::vector<Sequence> sequences;
  unsigned seed = 1;

  /// ||got - wanted|| / ||wanted|| of the row that is furthest off, of those that see anything; infinity if a row that sees
  /// nothing is not zeros.
  double error_on(Device& device) const;
};

}  // namespace sluice::testing
