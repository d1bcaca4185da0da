#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/device.h"

namespace sluice::cpu {

/// K and V of one layer and KV head in the pool: page `p` starts at base + p * page_stride.
struct KvPages {
  const std::byte* base = nullptr;
  size_t page_stride = 0;
  size_t key_offset = 0;
  size_t value_offset = 0;
  int page = 16;  // tokens
  int dim = 64;
  DataType type = DataType::kBF16;

  const std::byte* keys(int32_t page_id) const { return base + page_id * page_stride + key_offset; }
  const std::byte* values(int32_t page_id) const { return base + page_id * page_stride + value_offset; }
};

/// Most query heads that may share a KV head.
inline constexpr int kMostHeads = 16;

/// How many tokens of a row's pages make one piece of work of decode attention. Depends on nothing else, so that a row
/// gives the same bits in every batch and with every number of threads.
inline constexpr int kPieceTokens = 1024;
int pieces_of(int pages, int page_tokens);

/// Softmax of a part of the tokens, unfinished, for the `group` query heads of one KV head:
/// maximum [group] of the scaled scores in base 2, sum [group] of 2^(score - maximum), output [group, dim] not yet divided.
struct Partial {
  float* maximum = nullptr;
  float* sum = nullptr;
  float* output = nullptr;
};
/// Floats of one Partial in a buffer: maximum, sum, output, in this order.
size_t partial_floats(int group, int dim);
Partial partial_at(float* buffer, int group, int dim);

/// Floats of scratch that `prepare_piece` and `attend_piece` need.
size_t decode_scratch_floats(int group, int dim);

/// Lays a query row [group, dim], as the model gives it, out in `scratch` for any number of `attend_piece` calls; `scale`
/// multiplies q . k. `tiles`: q . k runs on AMX where amx_scores_take(kv). Asks for what lies first in `pages`.
void prepare_piece(const KvPages& kv, std::span<const int32_t> pages, const float* query, int group, float scale, bool tiles,
                   float* scratch);
/// The prepared query row over the first `piece` of `pages` (at most kPieceTokens tokens; all full but the last, which holds
/// `last_tokens`). What follows in `pages` is what this thread reads next. `mask` (may be null: all): a bit for each token of the
/// piece that the row sees; the others have finite numbers. Online softmax over blocks of tokens (Milakov and
/// Gimelshein 2018), every byte of K and V read from memory once for all heads of the group. `logits` (may be null) [tokens of
/// the piece, group] gets the scaled scores in base 2, -inf for tokens that the row does not see.
void attend_piece(const KvPages& kv, std::span<const int32_t> pages, size_t piece, int last_tokens, const uint32_t* mask,
                  int group, bool tiles, float* scratch, const Partial& result, float* logits = nullptr);

/// Entries of one step of the online softmax of `attend_tokens` and `attend_summaries`.
inline constexpr int kEntriesTogether = 256;
/// Floats of the widest vectors.
inline constexpr int kWidestFloats = 16;
/// Floats of scratch that `attend_tokens` and `attend_summaries` need.
size_t token_scratch_floats(int group, int dim);
/// A query row [group, dim], as the model gives it, over single tokens, those at `slots` of `pages`; `scale` multiplies q . k.
void attend_tokens(const KvPages& kv, const int32_t* pages, std::span<const int32_t> slots, const float* query, int group,
                   float scale, float* scratch, const Partial& result);

/// Keys, or values, that stand for pages: those of one start at base + its number * stride.
struct SummaryPart {
  const std::byte* base = nullptr;
  size_t stride = 0;  // bytes
  DataType type = DataType::kBF16;
  bool by_position = false;  // pages are numbered by their position in the row; else as the pool does

  const std::byte* of_page(std::span<const int32_t> pages, int32_t position) const {
    return base + static_cast<size_t>(by_position ? position : pages[static_cast<size_t>(position)]) * stride;
  }
};

/// Keys and values that stand for pages.
struct SummaryPages {
  SummaryPart keys;
  SummaryPart values;
  int entries = 1;  // a page
  int dim = 64;
  /// [pages of the row, entries, group]: q . k, not scaled; null: they are computed from the keys.
  const float* products = nullptr;
  size_t group = 1;
  const float* bias = nullptr;  // [pages of the row, bias_heads]: added to the scaled q . k; or null
  int bias_heads = 1;           // 1: all heads have the same
};
/// The same over the entries of those of `pages` that are at `positions`.
void attend_summaries(const SummaryPages& summaries, std::span<const int32_t> pages, std::span<const int32_t> positions,
                      const float* query, int group, float scale, float* scratch, const Partial& result);

/// Pages of a row whose tokens share what their summaries weigh.
struct OpenedPages {
  std::span<const int32_t> pages;      // all of the row, with K and V
  std::span<const int32_t> summaries;  // those with their summaries
  std::span<const int32_t> positions;  // which are opened, ascending; at least one
  int last_tokens = 0;                 // in the row's last page
  float* logits = nullptr;  // [pages, page, group]: gets what each token weighs, of those that are opened, in base 2; or null
};
/// The same over their tokens, of which those of a page together weigh what its one entry does.
void attend_opened(const KvPages& kv, const SummaryPages& summaries, const OpenedPages& opened, const float* query, int group,
                   float scale, float* scratch, const Partial& result);

/// What a group of pages has one entry for.
enum class GroupKind : uint8_t {
  kPages,   // nothing: each page weighs what it weighs
  kWhole,   // all its pages: each gets the mean of their logits
  kShares,  // what its pages share, each by its logit
};
/// Weighs the pages of groups, of `group_pages` each, and the first of `kinds`: in `logits` [pages of the row, group] goes what,
/// scaled, is added up for each page's entry, so that it may stand for products and bias of `summaries`. Of kShares a group
/// weighs as many as it has pages if there is a bias. The last group may have fewer pages, which are kPages.
void weigh_groups(const SummaryPages& summaries, std::span<const int32_t> pages, std::span<const GroupKind> kinds,
                  int group_pages, const float* query, int group, float scale, float* scratch, float* logits);

/// Merges `count` partials that lie partial_floats apart, in order, and divides: out [group, dim]. log_sums (may be null)
/// [group] gets the log2 of the sum of 2^score over all tokens.
void merge_partials(float* partials, int count, int group, int dim, float* out, float* log_sums);

/// Queries of a tile, (token, head) pairs, at most.
inline constexpr int kMostTileColumns = 128;

/// A tile of the queries of one sequence and KV head during prefill.
struct PrefillTile {
  const float* queries = nullptr;  // row r, head g: queries + r * query_stride + g * dim
  int64_t query_stride = 0;
  float* out = nullptr;  // as queries
  int64_t out_stride = 0;
  int rows = 0;  // tokens, at most prefill_tile_rows(group)
  /// [rows] ascending: row r sees the tokens [0, slots[r]].
  const int32_t* slots = nullptr;
  /// If not null: instead row r sees the tokens whose bits are set in the words from masks + r * mask_stride on, of the first
  /// `length`. A row that sees none gets zeros.
  const uint32_t* masks = nullptr;
  int mask_stride = 0;
  int length = 0;  // of the tokens that rows may see
  /// If not null, [rows][group]: gets the log2 of the sum of 2^score over the tokens that the row sees; -inf if there are none.
  float* log_sums = nullptr;

  /// Whether any row may see any of `tokens` tokens from `first` on, a multiple of 32.
  bool sees_any(int first, int tokens) const {
    if (masks == nullptr) return true;
    const auto is_set = [](uint32_t word) { return word != 0; };
    for (int row = 0; row < rows; ++row) {
      const uint32_t* words = masks + static_cast<ptrdiff_t>(row) * mask_stride;
      if (std::any_of(words + first / 32, words + (first + tokens + 31) / 32, is_set)) return true;
    }
    return false;
  }
};
/// logits [tokens, group], in base 2, become weights: 2^(logit - log_sums [group]), 0 for one of -inf.
void weigh_tokens(std::span<float> logits, std::span<const float> log_sums);

/// Tokens to which `add_masses` adds at a time.
inline constexpr int kMassTokens = 128;
/// Floats of scratch that `add_masses` needs.
size_t mass_scratch_floats(int dim);
/// Adds to masses [tokens, group] what the rows of a prompt give the tokens [first, first + tokens), at most kMassTokens, of
/// `pages`: row after row, so that the sums do not depend on how many rows come at a time. `rows` is as a tile, of any number of
/// rows, whose log_sums are read.
void add_masses(const KvPages& kv, const int32_t* pages, const PrefillTile& rows, int first, int tokens, int group, float scale,
                float* scratch, float* masses);

/// Tokens whose queries make one tile.
int prefill_tile_rows(int group);
/// Floats of scratch that `attend_tile` needs.
size_t prefill_scratch_floats(int dim);
/// Attention of one tile over `pages`, which hold at least the tokens that its rows see.
void attend_tile(const KvPages& kv, const int32_t* pages, const PrefillTile& tile, int group, float scale, float* scratch);

}  // namespace sluice::cpu
