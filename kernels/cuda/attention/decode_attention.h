#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/pages/paged_kv.h"

namespace sluice::cuda {

/// The lists of pages that decode rows attend to, in device memory. There is a list for each sequence, which its KV heads share,
/// or one for each (sequence, KV head).
struct PageLists {
  const int32_t* pages = nullptr;   // all lists
  const int32_t* starts = nullptr;  // [lists] where a list begins in `pages`
  const int32_t* tokens = nullptr;  // [lists] tokens that a list's pages hold: all are full but the last
  bool per_head = false;
  /// From list to list, if the first begins at 0 and each has room for so many pages, all of which can be read; else 0. With it a
  /// call looks at `tokens` even before earlier kernels have ended, for a guess that it checks once they have.
  int64_t stride = 0;
  /// Which of a list's tokens count: a bit each in the words of `masks` from mask_indptr[list] on; all of them, if there are none
  /// up to mask_indptr[list + 1]. What the others hold must be finite. Null: all count.
  const int32_t* mask_indptr = nullptr;  // [lists + 1]
  const uint32_t* masks = nullptr;
  int mask_heads = 1;  // of a list that KV heads share: masks in its words, which they have in turn
  /// Lists, and K and V of all tokens but the last of each, were there before any kernel that is at work when a call starts: it
  /// then reads them before those have ended. No list is empty.
  bool are_ready = false;
};

/// Where what tokens score is kept, in device memory.
struct TokenLogits {
  /// [sequences, kv_heads, group, stride] q . k in base 2, scaled, by the token's place in its list; -inf of those that do not
  /// count. Their weights are 2^(logit - log_sum). Null: nowhere.
  float* numbers = nullptr;
  int64_t stride = 0;  // even, and at least the tokens of any list, rounded up to 16
};

struct DecodeShape {
  int sequences = 1;
  int group = 1;             // query heads of a KV head, 1 to 16
  float scale = 1;           // of q . k
  int64_t query_stride = 0;  // numbers of q from sequence to sequence, a multiple of 4; 0: there are no gaps
};

/// Decode attention over page lists, on the device that is current when it is made: q [sequences, kv_heads * group, dim] bf16.
///
/// One kernel, whatever the lengths: every multiprocessor takes an equal stretch (or whole rows, where these come to little more)
/// of the tiles (16 tokens) of all rows, laid end to end (of rows of equal length: a row has blocks of its own), so work is even,
/// and a captured launch stays right while lengths grow. Each warp streams tiles through its own ring in shared memory (tensor
/// copies, a mbarrier a tile) and multiplies on tensor cores; what the stretches of a row find is merged by the block that ends
/// last, in a fixed order, so results do not depend on timing. 8-bit K and V become float16 on their way to the tensor cores,
/// which is exact; Q goes along, each head scaled by a power of two.
class DecodeAttention {
 public:
  /// Throws InputError for a layout that the kernels do not take.
  explicit DecodeAttention(const PagedKv& kv);

  /// Bytes of workspace for `run`; they must be zero before the first call, which calls keep so where they rely on it.
  size_t workspace_bytes(const DecodeShape& shape) const;
  /// out: like q. log_sums (may be null): float32 [sequences, kv_heads * group], log2 of the sum of 2^(score * log2 e). Rows of
  /// lists without tokens become zeros (log_sums -inf).
  void run(const DecodeShape& shape, const PageLists& lists, const void* q, void* out, float* log_sums, void* workspace,
           Stream stream, const TokenLogits& logits = {}) const;
  /// For tensor copies of K and V together, of 16 tokens or, where pages are no multiple of that, 8.
  const TensorMap& map() const { return map_; }
  const PagedKv& kv() const { return kv_; }
  /// Blocks that partial results have room for twice: multiprocessors.
  int blocks() const { return blocks_; }
  /// Where partial results begin in a workspace.
  float* partials_in(void* workspace, const DecodeShape& shape) const;

 private:
  /// Of those of rows, with which a workspace begins.
  size_t counter_bytes(const DecodeShape& shape) const;

  PagedKv kv_;
  int blocks_ = 0;  // multiprocessors
  TensorMap map_;
};

}  // namespace sluice::cuda
