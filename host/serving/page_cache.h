#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "host/serving/block_pool.h"
#include "host/serving/prefix_index.h"

namespace sluice {

/// Pages as requests see them: taken, shared with whoever has the same prefix, given back. A page given back that others
/// may want again is kept until its room is needed. Nothing allocates after construction.
class PageCache {
 public:
  /// `page` is in tokens. Without `share` no page is ever shared.
  PageCache(int pages, int page, bool share);

  int page() const { return page_; }
  int pages() const { return pool_.pages(); }
  /// Pages that `take` can give, those that would be evicted included.
  int available() const { return pool_.free_pages() + (index_ ? index_->idle_pages() : 0); }
  int free_pages() const { return pool_.free_pages(); }
  int users(int32_t page) const { return pool_.users(page); }
  /// Memory of the bookkeeping.
  size_t bytes() const { return pool_.bytes() + (index_ ? index_->bytes() : 0); }

  /// A page of one's own, with undefined contents. Throws InternalError if none is available.
  int32_t take();
  /// Gives up one's use of `pages`.
  void release(std::span<const int32_t> pages);
  /// Appends to `pages` those that hold the longest known prefix of `tokens`, and makes the caller one of their users.
  /// Only full pages are known, so the last tokens % page tokens are never found. Returns the pages found.
  int match(std::span<const int32_t> tokens, std::vector<int32_t>& pages);
  /// Offers `page`, now full with `tokens`, to others; `parent` is the page before it (PrefixIndex::kRoot for the first),
  /// itself published. If an equal page is known, the caller becomes a user of that one instead. Returns the page to go on
  /// with.
  int32_t publish(int32_t parent, std::span<const int32_t> tokens, int32_t page);

 private:
  void retain(int32_t page);
  void release(int32_t page);

  int page_;
  BlockPool pool_;
  std::optional<PrefixIndex> index_;
};

}  // namespace sluice
