#include "kernels/cpu/pass.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::cpu {
namespace {

void require(bool holds, const char* field, int64_t got, int64_t wanted) {
  if (!holds) throw InternalError(fmt::format("pass: {} is {}, expected {}", field, got, wanted));
}

}  // namespace

void Pass::reserve(const Device::Limits& limits) {
  positions_.reserve(limits.rows);
  sequences_.reserve(limits.rows);
  // A sequence's rows touch one page each at most.
  touched_.reserve(limits.rows);
}

std::span<const int32_t> Pass::pages(int sequence) const {
  const int page = pool_->layout().page;
  return batch_.page_indices.subspan(batch_.page_indptr[sequence], (batch_.lengths[sequence] + page - 1) / page);
}

void Pass::check() const {
  const auto sequences = static_cast<size_t>(batch_.sequences());
  require(batch_.query_indptr.size() == sequences + 1, "size of query_indptr", batch_.query_indptr.size(), sequences + 1);
  require(batch_.page_indptr.size() == sequences + 1, "size of page_indptr", batch_.page_indptr.size(), sequences + 1);
  require(batch_.decoding.size() == sequences, "size of decoding", batch_.decoding.size(), sequences);
  require(batch_.seeds.empty() || batch_.seeds.size() == sequences, "size of seeds", batch_.seeds.size(), sequences);
  require(batch_.states.empty() || batch_.states.size() == sequences, "size of states", batch_.states.size(), sequences);
  require(batch_.query_indptr[0] == 0, "query_indptr[0]", batch_.query_indptr[0], 0);
  const int page = pool_->layout().page;
  for (size_t s = 0; s < sequences; ++s) {
    const int rows = query_rows(static_cast<int>(s));
    require(rows >= 1, "rows of a sequence", rows, 1);
    require(rows <= batch_.lengths[s], "length of a sequence", batch_.lengths[s], rows);
    require(batch_.decoding[s] == 0 || rows == 1, "rows of a decode step", rows, 1);
    const int held = batch_.page_indptr[s + 1] - batch_.page_indptr[s];
    const int needed = (batch_.lengths[s] + page - 1) / page;
    require(batch_.page_indptr[s] >= 0 && held >= needed, "pages of a sequence", held, needed);
    require(static_cast<size_t>(batch_.page_indptr[s + 1]) <= batch_.page_indices.size(), "end of a sequence's pages",
            batch_.page_indptr[s + 1], static_cast<int64_t>(batch_.page_indices.size()));
    for (int32_t index : pages(static_cast<int>(s))) pool_->check_page(index);
  }
}

void Pass::begin(const PassBatch& batch, CpuPool& pool) {
  if (active()) throw InternalError("begin_pass was called within a pass");
  batch_ = batch;
  pool_ = &pool;
  try {
    check();
  } catch (...) {
    pool_ = nullptr;
    throw;
  }
  ++number_;
  positions_.clear();
  sequences_.clear();
  touched_.clear();
  const int page = pool.layout().page;
  for (int s = 0; s < batch.sequences(); ++s) {
    const int length = batch.lengths[s];
    const int first = length - query_rows(s);
    for (int position = first; position < length; ++position) {
      positions_.push_back(position);
      sequences_.push_back(s);
    }
    const auto held = pages(s);
    for (int index = first / page; index < static_cast<int>(held.size()); ++index) {
      touched_.push_back({held[index], std::min(page, length - index * page)});
    }
  }
}

}  // namespace sluice::cpu
