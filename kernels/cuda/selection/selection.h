#pragma once

#include <cstdint>

struct CUstream_st;

namespace sluice::cuda {

using Stream = CUstream_st*;

// Rows are (sequence, KV head): row = sequence * kv_heads + head. A sequence has B = ceil(length / page) pages.

/// A selection of a flow: the `first` and `last` pages of a sequence, and those that a list names; all B pages where
/// first + last >= B, whatever the list says. A window has no list. Device memory.
struct SelectionLeaf {
  const int32_t* list = nullptr;  // [rows, list_stride] page positions less `first`, ascending, in [0, B - first - last); or null
  int64_t list_stride = 0;        // entries behind a row's count may be read, but count for nothing
  const int32_t* counts = nullptr;  // [rows] entries of the row's list
  int first = 0;
  int last = 0;
};

/// The union of leaves, and where it goes in the form that decode attention takes (PageLists, per head). Pointers are device
/// memory. What lies behind a row's count is left as it was.
struct Selection {
  static constexpr int kMostLeaves = 8;
  /// Pages of a sequence where lists are to be merged: a bit each in shared memory.
  static constexpr int kMostMergedPages = 3 << 19;

  SelectionLeaf leaves[kMostLeaves];  // 1 to 8 are used; they may overlap
  int leaf_count = 0;

  int sequences = 0;
  int kv_heads = 1;
  int page = 16;                          // tokens in a page
  int max_pages = 0;                      // no sequence has more; what lies beyond is not looked at
  const int32_t* lengths = nullptr;       // [sequences] tokens
  const int32_t* page_indptr = nullptr;   // [sequences] where a sequence begins in page_indices
  const int32_t* page_indices = nullptr;  // pool pages, oldest first

  int32_t* positions = nullptr;  // [rows, stride] positions of the selected pages in the sequence, ascending; may be null
  int32_t* pages = nullptr;      // [rows, stride] the same as pool pages
  int64_t stride = 0;            // at least the pages that a row can select
  int32_t* starts = nullptr;     // [rows] row * stride
  int32_t* tokens = nullptr;     // [rows] tokens in the selected pages: all are full but the sequence's last
  int32_t* counts = nullptr;     // [rows] selected pages; 0 only if B is, or no leaf has a page (flows that may are refused)

  unsigned long long* attended = nullptr;   // the sum of counts is added; may be null
  unsigned long long* available = nullptr;  // the sum of B over rows is added; may be null
};

/// Merges the leaves of all rows in one launch, without workspace; may be captured in a graph, which then follows lengths, lists
/// and page tables as they change. Takes part in programmatic dependent launch: it starts while the kernel before it ends, and
/// lets the next one start. Results do not depend on timing.
///
/// Throws InternalError for a number of leaves that is not 1 to 8, for rows whose starts do not fit 32 bits, and for max_pages
/// above kMostMergedPages, unless there is at most one list, whose leaf keeps no fewer first and last pages than any window.
void finish_selection(const Selection& selection, Stream stream);

}  // namespace sluice::cuda
