#pragma once

#include <cstdint>
#include <span>

#include "kernels/device/compiled_flow.h"

namespace sluice {

/// The sequences of one forward pass. Spans lie in host memory and stay valid until the pass ends.
struct PassBatch {
  std::span<const int32_t> query_indptr;  // [sequences + 1] rows of the token matrix
  std::span<const int32_t> lengths;       // [sequences] tokens in the cache once this pass's are appended
  std::span<const int32_t> page_indptr;   // [sequences + 1]
  std::span<const int32_t> page_indices;  // [page_indptr.back()] pages, oldest first
  std::span<const uint8_t> decoding;      // [sequences] 1: a decode step (one row; sparse layers run the flow); 0: prefill, dense
  std::span<const uint64_t> seeds;        // [sequences] the request's seed for kRandom and kApproxTopK
  std::span<RequestState* const> states;  // [sequences] may hold nulls

  int sequences() const { return static_cast<int>(lengths.size()); }
  int rows() const { return query_indptr.empty() ? 0 : query_indptr.back(); }
  int query_rows(int sequence) const { return query_indptr[sequence + 1] - query_indptr[sequence]; }
  /// The pages that hold the sequence's tokens, `page` in each, oldest first.
  std::span<const int32_t> pages(int sequence, int page) const {
    return page_indices.subspan(page_indptr[sequence], (lengths[sequence] + page - 1) / page);
  }
};

}  // namespace sluice
