#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scripting/pattern/analysis.h"

namespace sluice {

/// How long the pages of a sequence are needed under a pattern where its tokens lie in the order of positions: a page is, as long
/// as a query will read one of its tokens. It follows from the position alone, so it is the same for all sequences.
class PageLives {
 public:
  /// Of sequences of up to `length` tokens. Throws InputError as PatternAnalysis does.
  PageLives(const PatternAnalysis& analysis, int length, int page_tokens);

  /// Of the longest sequence.
  int tokens() const { return tokens_; }
  /// The last query that reads a token of a page, those of the page's own tokens at least.
  int last_reader(int page) const { return last_[static_cast<size_t>(page)]; }
  /// Whether a query from `position` on reads a token of a page, or may still write one.
  bool is_needed(int page, int position) const { return last_reader(page) >= position; }
  /// The most pages that are needed at a time while `tokens` tokens come one by one, the newest's own among them.
  int most(int tokens) const;
  /// The pages whose last reader is at `first` or later, and before `end`.
  std::span<const int32_t> ending(int first, int end) const;

 private:
  int tokens_;
  int page_tokens_;
  std::vector<int32_t> last_;     // [pages]
  std::vector<int32_t> most_;     // [pages] needed at a time until the page begins
  std::vector<int32_t> by_last_;  // pages, the first to end first
};

}  // namespace sluice
