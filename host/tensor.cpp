#include "host/tensor.h"

#include <fmt/format.h>

#include "scripting/graph/error.h"

namespace sluice {

Layout::Layout(Kind kind, int page) : kind_(kind), page_(page), indptr_{0} {}

Layout Layout::batch(int sequences, int rows) {
  Layout layout(Kind::kBatch, 1);
  for (int i = 1; i <= sequences; ++i) {
    layout.indptr_.push_back(i * rows);
    layout.lengths_.push_back(rows);
  }
  return layout;
}

Layout Layout::ragged() { return {Kind::kRagged, 1}; }

Layout Layout::paged(int page) { return {Kind::kPaged, page}; }

int64_t Layout::storage_row(int sequence, int row) const {
  const int32_t first = indptr_[static_cast<size_t>(sequence)];
  if (kind_ != Kind::kPaged) return int64_t{first} + row;
  const int64_t page = indices_[static_cast<size_t>(first) + static_cast<size_t>(row / page_)];
  return page * page_ + row % page_;
}

Layout Layout::to_paged() const {
  if (kind_ == Kind::kPaged) return *this;
  Layout layout(Kind::kPaged, 1);
  layout.indptr_ = indptr_;
  layout.lengths_ = lengths_;
  for (int32_t row = 0; row < indptr_.back(); ++row) layout.indices_.push_back(row);
  return layout;
}

void Layout::reserve(int sequences, int indices) {
  indptr_.reserve(static_cast<size_t>(sequences) + 1);
  lengths_.reserve(static_cast<size_t>(sequences));
  indices_.reserve(static_cast<size_t>(indices));
}

void Layout::clear() {
  indptr_.resize(1);
  indices_.clear();
  lengths_.clear();
}

void Layout::append(int rows) {
  if (kind_ != Kind::kRagged) throw InternalError("rows without pages can be appended to ragged layouts only");
  indptr_.push_back(indptr_.back() + rows);
  lengths_.push_back(rows);
}

void Layout::append(std::span<const int32_t> pages, int rows) {
  if (kind_ != Kind::kPaged || static_cast<int>(pages.size()) != pages_for(rows, page_)) {
    throw InternalError(fmt::format("{} pages of {} rows cannot hold a sequence of {}", pages.size(), page_, rows));
  }
  indices_.insert(indices_.end(), pages.begin(), pages.end());
  indptr_.push_back(static_cast<int32_t>(indices_.size()));
  lengths_.push_back(rows);
}

}  // namespace sluice
