#include "scripting/pattern/page_lives.h"

#include <algorithm>
#include <numeric>

namespace sluice {

PageLives::PageLives(const PatternAnalysis& analysis, int length, int page_tokens) : tokens_(length), page_tokens_(page_tokens) {
  const std::vector<int32_t> last = analysis.last_readers(length);
  const int pages = (length + page_tokens - 1) / page_tokens;
  std::vector<int32_t> ended(static_cast<size_t>(pages) + 1, 0);  // before the page begins
  for (int page = 0; page < pages; ++page) {
    const int end = (page + 1) * page_tokens;
    const auto first = last.begin() + page * page_tokens;
    last_.push_back(std::max(end - 1, *std::max_element(first, last.begin() + std::min(end, length))));
    ++ended[static_cast<size_t>(std::min(pages, last_.back() / page_tokens + 1))];
  }
  int needed = 0;
  for (int page = 0; page < pages; ++page) {
    needed += 1 - ended[static_cast<size_t>(page)];
    most_.push_back(std::max(needed, most_.empty() ? 0 : most_.back()));
  }
  by_last_.resize(last_.size());
  std::iota(by_last_.begin(), by_last_.end(), 0);
  std::stable_sort(by_last_.begin(), by_last_.end(), [&](int a, int b) { return last_reader(a) < last_reader(b); });
}

int PageLives::most(int tokens) const {
  const int pages = (std::min(tokens, tokens_) + page_tokens_ - 1) / page_tokens_;
  return pages == 0 ? 0 : most_[static_cast<size_t>(pages) - 1];
}

std::span<const int32_t> PageLives::ending(int first, int end) const {
  const auto from = [&](int position) {
    return std::partition_point(by_last_.begin(), by_last_.end(), [&](int page) { return last_reader(page) < position; });
  };
  return {from(first), from(std::max(first, end))};
}

}  // namespace sluice
