#include "host/serving/tensor.h"

#include <fmt/format.h>

#include "scripting/base/error.h"

namespace sluice {

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
  if (page_ > 0) throw InternalError("rows without pages can be appended to ragged layouts only");
  indptr_.push_back(indptr_.back() + rows);
  lengths_.push_back(rows);
}

void Layout::append(std::span<const int32_t> pages, int rows) {
  if (page_ == 0 || static_cast<int>(pages.size()) != pages_for(rows, page_)) {
    throw InternalError(fmt::format("{} pages of {} rows cannot hold a sequence of {}", pages.size(), page_, rows));
  }
  indices_.insert(indices_.end(), pages.begin(), pages.end());
  indptr_.push_back(static_cast<int32_t>(indices_.size()));
  lengths_.push_back(rows);
}

}  // namespace sluice
