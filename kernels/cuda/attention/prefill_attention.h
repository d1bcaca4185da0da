#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/pages/paged_kv.h"
#include "kernels/cuda/runtime/runtime.h"

namespace sluice::cuda {

/// What the host knows of a call; the device reads the rest from the tables, so a captured launch stays right while they change.
struct PrefillShape {
  int sequences = 1;
  int rows = 1;     // of queries, all sequences together; the tables may hold fewer
  int group = 1;    // query heads of a KV head, 1 to 16
  float scale = 1;  // of q . k; positive
  // Where pages have 8-bit K and V: those of all sequences lie at [first_page, first_page + pages) of the tables' page_indices.
  int first_page = 0;
  int pages = 0;
  int most_tokens = 0;  // that rows of a sequence may see; needed where there are lists, which take up to 2^20
};

/// Rows of queries and the pages that they see, in device memory, as in a PassBatch.
struct PrefillTables {
  const int32_t* query_indptr = nullptr;  // [sequences + 1] rows of a sequence
  const int32_t* lengths = nullptr;       // [sequences] tokens that its rows may see
  const int32_t* page_indptr = nullptr;   // [sequences + 1] where the pages of a sequence are in `page_indices`
  const int32_t* page_indices = nullptr;  // those of a sequence in the order of its tokens
  /// Null: rows of every sequence are its last tokens, one behind the other, and have no masks. Else [rows] ascending in a
  /// sequence: a row sees the tokens up to this one.
  const int32_t* slots = nullptr;
  /// With it: which tokens rows see instead, as GroupPages has it. Null: no sequence has masks.
  const int32_t* mask_indptr = nullptr;  // [sequences + 1]
  const uint32_t* masks = nullptr;
  int mask_heads = 1;
  int stride = 0;  // GroupPages::row_stride
  /// With slots: what `list_tiles` wrote for the same shape and tables.
  const int32_t* lists = nullptr;
};

/// bf16 [rows, kv_heads * group, dim] in device memory, aligned to 16 bytes.
template <typename T>
struct HeadRows {
  T* data = nullptr;
  int64_t stride = 0;  // numbers from a row to the next, a multiple of 8
};

/// Attention of chunks of prompts over paged KV, on the device that is current when it is made: a row sees the tokens of its
/// sequence up to its own, or those of its mask (none: zeros).
///
/// A block for every multiprocessor takes works as it gets to them: 128 consecutive (row, head of the group) pairs of one KV
/// head, which share its K and V. Two warps copy tiles of tokens into rings in shared memory, ahead into the next work; two
/// warpgroups, 64 pairs each, multiply on tensor cores: each asks for its next scores and for the output of its previous
/// weights, and is at the powers in between (the pipeline of FlashAttention-3, arXiv 2407.08608, section 3.2; its section 3.1,
/// turns of the warpgroups, made this one slower). Works with the most tokens come first, among the heads whose K and V fit the
/// second-level cache together.
///
/// Under strided patterns a call has two parts, of near tokens and of far ones (prefill_lists.cuh). Where rows that do not follow
/// each other are few, their lists are split among more blocks (prefill_splits.cuh).
///
/// Pages of 8-bit K and V are first written to the workspace as bf16, which holds them exactly: for a token, that moves five
/// times the bytes that it has.
class PrefillAttention {
 public:
  /// Throws InputError for a layout that the kernels do not take.
  explicit PrefillAttention(const PagedKv& kv);

  int head_dim() const { return kv_.layout.head_dim; }
  /// Bytes of the lists of a call, and writes them: which tiles of tokens each tile of rows sees. They serve all layers whose
  /// rows see the same, in heads of the same size.
  size_t list_bytes(const PrefillShape& shape, const PrefillTables& tables) const;
  void list_tiles(const PrefillShape& shape, const PrefillTables& tables, int32_t* lists, Stream stream) const;
  /// Bytes of so many pages as the workspace has them: none for bf16.
  size_t widened_bytes(int pages) const;
  /// Bytes of workspace for `run`.
  size_t workspace_bytes(const PrefillShape& shape, const PrefillTables& tables) const;
  /// Calls of one object must not overlap: they share a counter.
  void run(const PrefillShape& shape, const PrefillTables& tables, HeadRows<const void> q, HeadRows<void> out, void* workspace,
           Stream stream) const;

 private:
  bool widens() const { return kv_.layout.kv != DataType::kBF16; }
  /// Writes the pages of a call to the workspace as bf16 and gives a list of them there.
  const int32_t* widen(const PrefillShape& shape, const PrefillTables& tables, void* workspace, Stream stream) const;

  PagedKv kv_;
  PageLayout widened_;  // of pages in the workspace
  int blocks_ = 0;      // multiprocessors
  DeviceMemory taken_;
  TensorMap map_;
};

}  // namespace sluice::cuda
