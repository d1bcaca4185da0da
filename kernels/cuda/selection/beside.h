#pragma once

#include <cstdint>

struct CUstream_st;

namespace sluice::cuda {

using Stream = CUstream_st*;

/// Selected pages, and those of the same sequences that have tokens beside them (BesideTokens), as one list for each row with a
/// mask of the tokens that count: all of a page that was selected (or those of it that were) and those beside a selection; of
/// both, those that are visible. A row
/// is sequence * kv_heads + head. Pointers are device memory.
struct JoinedSelection {
  /// Pages of a sequence: two bits each in shared memory.
  static constexpr int kMostPages = 5 << 17;

  // What was selected (FlowResult).
  const int32_t* selected = nullptr;         // [rows, stride] page positions, ascending
  const int32_t* selected_counts = nullptr;  // [rows]
  const uint32_t* selected_masks = nullptr;  // [rows, mask_stride] of their tokens that were selected (TokenSelection); null: all

  int sequences = 0;
  int kv_heads = 1;
  int page = 16;                          // tokens in a page
  int max_pages = 0;                      // no sequence has more, and no list
  const int32_t* lengths = nullptr;       // [sequences] tokens
  const int32_t* page_indptr = nullptr;   // [sequences] where a sequence begins in page_indices
  const int32_t* page_indices = nullptr;  // pool pages, oldest first

  /// [sequences + 1] where those of a sequence begin in `beside`: for each page its position and then page_words(page) words.
  const int32_t* beside_indptr = nullptr;
  const int32_t* beside = nullptr;

  /// [sequences + 1] where the words of a sequence begin in `visible`, a bit for each token of its pages; without words all are.
  const int32_t* visible_indptr = nullptr;
  const uint32_t* visible = nullptr;
  int visible_heads = 1;  // masks in those words, which KV heads have in turn

  // Where it goes, in the form that decode attention takes (PageLists, per head).
  int32_t* positions = nullptr;    // [rows, stride] page positions, ascending
  int32_t* pages = nullptr;        // [rows, stride] pool pages, in that order
  int32_t* starts = nullptr;       // [rows] row * stride
  int32_t* tokens = nullptr;       // [rows]
  int32_t* counts = nullptr;       // [rows]
  int32_t* mask_indptr = nullptr;  // [rows + 1]
  uint32_t* masks = nullptr;       // [rows, mask_stride]
  int64_t stride = 0;              // at least max_pages
  int64_t mask_stride = 0;         // words of a row: for the tokens of `stride` pages

  unsigned long long* attended = nullptr;  // the pages that were not selected are added; may be null
};

/// Joins the lists of all rows in one launch, without workspace; may be captured in a graph. Takes part in programmatic dependent
/// launch. Throws InternalError for more pages than a block can mark (kMostPages), and for rows whose starts
/// do not fit 32 bits.
void join_beside(const JoinedSelection& joined, Stream stream);

}  // namespace sluice::cuda
