#pragma once

#include <cstdint>
#include <span>

#include "kernels/device/compiled_flow.h"

namespace sluice {

/// Pages that `tokens` tokens take.
constexpr int pages_for(int tokens, int page) { return (tokens + page - 1) / page; }

/// Words of 32 bits with a bit for each token of a page.
constexpr int page_words(int page) { return (page + 31) / 32; }

/// Tokens that decode rows see beside what a flow selects (AttentionSource::beside), page by page: of each sequence the pages
/// that have such tokens.
struct BesideTokens {
  std::span<const int32_t> indptr;  // [sequences + 1] in `pages`, or empty: there are none
  std::span<const int32_t> pages;   // places in the sequence's list of pages, ascending
  std::span<const uint32_t> words;  // page_words(page) for each of them: a bit a token, from the lowest of the first on

  bool empty() const { return pages.empty(); }
};

/// What one group of layers (CacheGroup) keeps of the sequences of a pass: for each a list of pages, whose tokens lie in slots
/// that are numbered from the list's first page on. Where a group keeps everything a token's slot is its position.
struct GroupPages {
  std::span<const int32_t> lengths;       // [sequences] slots in use once this pass's rows are there
  std::span<const int32_t> page_indptr;   // [sequences + 1]
  std::span<const int32_t> page_indices;  // [page_indptr.back()] pages in the order of their slots
  std::span<const int32_t> slots;         // [rows] where a row's key and value go; those of a sequence ascend
  /// [rows][mask_heads] where they go in KV heads whose slots differ; those of a sequence ascend in each head, and every sequence
  /// has masks. `slots` has those of the first head. Empty: all heads have the same.
  std::span<const int32_t> head_slots = {};
  /// Which slots rows see, a bit each in words of 32 from the lowest on: of sequence s, [rows][mask_heads][mask_words(s)] from
  /// masks[mask_indptr[s]] on. A sequence without words, and all where `mask_indptr` is empty, see the slots up to their own. A
  /// slot that a row does not see but another might is there, and its numbers are finite.
  std::span<const int32_t> mask_indptr;  // [sequences + 1], or empty
  std::span<const uint32_t> masks;
  int mask_heads = 1;  // KV head h has the mask at place h modulo this: 1, one mask is that of all
  int row_stride = 0;  // rows of a prompt that see much of the same distant slots lie so far apart (Pattern::query_stride)
  BesideTokens beside = {};
  /// Where the pass's flow evicts (FlowGraph::eviction): [sequences] slots that had tokens before the pass, whose pages are
  /// listed, too. Those that its rows are in the way of leave first: rows go to the last slots of `lengths`. Empty: nobody
  /// leaves.
  std::span<const int32_t> held = {};
  /// The last row that reads the token of each position under Eviction::keep; empty: there is none.
  std::span<const int32_t> last_readers = {};
  /// With `held`: [sequences] rows of a prompt up to the end of the chunk that the pass's rows are of (Eviction::chunk_end), in
  /// place of PassBatch::prompt_rows: the after stage runs for each chunk.
  std::span<const int32_t> chunk_ends = {};

  /// The pages of the slots in use, `page` in each.
  std::span<const int32_t> pages(int sequence, int page) const {
    return page_indices.subspan(page_indptr[sequence], pages_for(lengths[sequence], page));
  }
  /// Whether the pass has anything to do with the group: others are empty.
  bool is_used() const { return !page_indptr.empty(); }
  /// Where a row's key and value go in a KV head.
  int slot(int row, int kv_head) const {
    return head_slots.empty() ? slots[row] : head_slots[static_cast<size_t>(row) * mask_heads + kv_head % mask_heads];
  }
  /// Tokens of before a pass that are there while it has `rows` rows of a sequence.
  int staying(int sequence, int rows) const { return lengths[sequence] - rows; }
  bool has_masks() const { return !mask_indptr.empty() && mask_indptr.back() > 0; }
  bool is_masked(int sequence) const { return !mask_indptr.empty() && mask_indptr[sequence + 1] > mask_indptr[sequence]; }
  /// Words of a row's mask, of one head.
  int mask_words(int sequence) const { return (lengths[sequence] + 31) / 32; }
  /// What a row of a masked sequence sees in a KV head.
  std::span<const uint32_t> mask(int sequence, int row, int kv_head) const {
    const int words = mask_words(sequence);
    const auto place = static_cast<size_t>(row) * mask_heads + kv_head % mask_heads;
    return masks.subspan(mask_indptr[sequence] + place * words, words);
  }
};

/// The sequences of one forward pass: rows of the token matrix, each with the position of its token. Those of a sequence lie one
/// behind the other in the order of their positions, which may have gaps and need not be the last: a row attends to what the
/// cache holds up to its own position. Spans lie in host memory and stay valid until the pass ends.
struct PassBatch {
  std::span<const int32_t> query_indptr;  // [sequences + 1] rows
  std::span<const int32_t> positions;     // [rows]
  std::span<const uint8_t> decoding;      // [sequences] 1: a decode step (one row; sparse layers run the flow); 0: prefill, dense
  std::span<const uint64_t> seeds;        // [sequences] the request's seed for kRandom and kApproxTopK; or empty
  std::span<RequestState* const> states;  // [sequences] may hold nulls; or empty
  std::span<const GroupPages> groups;     // as the pool has them, but for the last ones that the pass does not use
  /// The group that has the fields of the pass's flow, whose pages hold the same tokens as those of K and V; -1: they lie with K
  /// and V.
  int field_group = -1;
  /// [sequences] rows that a prompt has before its first decode step, in this pass and others: once the last of them has been
  /// attended to, the flow's after stage runs for it. 0: it does not; or empty: for none. Where tokens leave,
  /// GroupPages::chunk_ends says it.
  std::span<const int32_t> prompt_rows = {};

  int sequences() const { return static_cast<int>(decoding.size()); }
  int rows() const { return query_indptr.empty() ? 0 : query_indptr.back(); }
  int query_rows(int sequence) const { return query_indptr[sequence + 1] - query_indptr[sequence]; }
  /// Slots of a group that a sequence's last row sees, if it is not masked.
  int seen(int group, int sequence) const { return groups[group].slots[query_indptr[sequence + 1] - 1] + 1; }
};

}  // namespace sluice
