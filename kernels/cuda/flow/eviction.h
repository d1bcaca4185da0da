#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/codegen/arguments.h"

struct CUstream_st;

namespace sluice::cuda {

using Stream = CUstream_st*;

/// A state with the axes page and token, in the block of a layer and KV head.
struct TokenState {
  int64_t offset = 0;    // numbers a page of the states before it
  int64_t elements = 0;  // of a page
  int64_t inner = 0;     // numbers inside the token axis
  float initial = 0;
};

/// Where the tokens of some layers lie, whose pages are the same, and what is kept of them.
struct EvictedLayers {
  static constexpr int kMost = 64;  // they travel with the launch

  int count = 0;
  // Block (page, KV head) at base + page * page_stride + head * block_bytes.
  std::byte* base[kMost] = {};
  int state_layer[kMost] = {};  // numbers of the layers among those that run the flow
  size_t page_stride = 0;
  size_t block_bytes = 0;
  size_t key_offset = 0;
  size_t value_offset = 0;
  int row_bytes = 0;  // of K, or of V, of a token: a multiple of 16
  int page = 16;
  int kv_heads = 1;

  int64_t state_page_numbers = 0;
  int64_t state_fixed_numbers = 0;
  int64_t score_offset = 0;  // of the state that says who leaves, [page, token]: numbers a page of the states before it
  const TokenState* token_states = nullptr;
  int token_state_count = 0;
};

/// Who may leave (Eviction).
struct EvictionRule {
  int first = 0;
  int recent = 1;
  const int32_t* last_readers = nullptr;  // by position (GroupPages::last_readers), or null
};

/// What leaves make room for. All in device memory.
struct EvictingBatch {
  int sequences = 0;
  int most_held = 0;                      // tokens of any sequence; by this and the next kernels are chosen
  int most_leave = 0;                     // of any sequence: at most one, or any number
  const int32_t* page_indptr = nullptr;   // [sequences]
  const int32_t* page_indices = nullptr;  // in the order of slots
  const int32_t* held = nullptr;          // [sequences] tokens that are there
  const int32_t* staying = nullptr;       // [sequences] of them
  const int32_t* newest = nullptr;        // [sequences] position of the newest token that comes with the pass's rows
  const int32_t* dense_pages = nullptr;   // [sequences] that dense attention of a decode step would read
  const int32_t* query_indptr = nullptr;  // [sequences + 1] rows
  const int32_t* positions = nullptr;     // [rows]
  const StateBlock* states = nullptr;     // [sequences] with positions
  const int32_t* field_indptr = nullptr;  // the same of pages that fields have of their own
  const int32_t* field_indices = nullptr;
};

/// Pages that tokens have moved to, for a refresh of their fields.
struct MovedPages {
  int32_t* pages = nullptr;   // [layers, sequences, room, kv_heads], -1 behind those that there are; null: nobody asks
  int32_t* fields = nullptr;  // the same of the pages that have their fields, where these are others; else null
  int32_t* tokens = nullptr;  // that stay in each
  int room = 0;
};

/// A token that takes the slot of one that has left.
struct alignas(8) SlotMove {
  int32_t from;
  int32_t to;
};

/// Where the moves of a row are kept meanwhile, and pages are counted.
struct EvictionScratch {
  SlotMove* moves = nullptr;  // [layers, rows, room]
  int64_t room = 0;           // at least as many as tokens can move in any row
  // What decode steps read, in pages, and dense ones would; EvictingBatch says it.
  unsigned long long* attended = nullptr;  // null: others count that
  unsigned long long* available = nullptr;
};

/// Finds who leaves each (layer, sequence, KV head), moves those from the highest slots into the gaps with what states keep of
/// them, and notes the positions of the rows that come (CacheOperations::evict). The same tokens leave as on a CPU.
void evict_tokens(const EvictedLayers& layers, const EvictionRule& rule, const EvictingBatch& batch, const MovedPages& moved,
                  const EvictionScratch& scratch, Stream stream);

}  // namespace sluice::cuda
