#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cuda/pages/paged_kv.h"

namespace sluice::cuda {

/// Rows of one sequence's prompt, all KV heads, in device memory.
struct PromptRows {
  const uint16_t* q = nullptr;  // bf16 [rows, kv_heads * group * dim]
  int64_t q_stride = 0;         // numbers from row to row, even
  int rows = 0;
  int group = 1;
  float scale = 1;                 // of q . k
  const int32_t* pages = nullptr;  // of the sequence, in the order of slots
  const int32_t* slots = nullptr;  // [rows] ascending: a row sees those up to its own, unless there are masks
  int length = 0;                  // slots that any row may see
  /// [rows][mask_heads] words, (length + 31) / 32 each, a bit for each slot that a row sees; KV heads have them in turn. Null:
  /// there are none.
  const uint32_t* masks = nullptr;
  int mask_heads = 1;
};

/// What rows of a prompt gave the tokens that they saw: a second pass over K.
class PromptMasses {
 public:
  explicit PromptMasses(PagedKv kv) : kv_(std::move(kv)) {}

  /// Bytes of workspace for `add`.
  size_t workspace_bytes(int rows, int group) const;
  /// Adds, head by head, the weights that the rows' softmax gives each slot to sums [kv_heads, group, stride]: to what slots
  /// below `known` have so far, and to 0 for others. The order of additions does not depend on timing.
  void add(const PromptRows& rows, float* sums, int64_t stride, int known, void* workspace, Stream stream) const;

 private:
  PagedKv kv_;
};

}  // namespace sluice::cuda
