#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "host/serving/block_pool.h"
#include "host/serving/idle_pages.h"
#include "host/serving/prefix_index.h"
#include "kernels/device/page_pool.h"

namespace sluice {

/// Most groups of layers that an engine keeps apart.
inline constexpr int kMostGroups = 8;
/// A number of pages for each group.
using PageCounts = std::array<int, kMostGroups>;

/// Pages as requests see them: taken, shared with whoever has the same prefix, given back. A page given back that others
/// may want again is kept until its room is needed. Nothing allocates after construction.
///
/// Pages are of groups of layers (CacheGroup), which share memory out slab by slab (PoolMap): a group that needs pages takes a
/// slab that no group has, or one of which another group uses no page. The first group keeps all tokens. Prefixes are found by
/// its pages; those of other groups are found with the page of the first that has the same tokens.
class PageCache {
 public:
  struct Options {
    int page = 16;             // tokens
    bool share = true;         // else no page is ever shared
    std::vector<int> windows;  // by group: tokens back that a row sees, itself included; 0: all, as the first must
  };
  PageCache(const PoolMap& map, const Options& options);
  /// One group of `pages` pages that keeps all tokens.
  PageCache(int pages, int page, bool share);

  int groups() const { return static_cast<int>(groups_.size()); }
  int page() const { return page_; }
  /// 0: the group keeps all tokens.
  int window(int group) const { return groups_[static_cast<size_t>(group)].window; }
  /// The first page of a sequence, counted from its beginning, that a group needs for rows from `position` on.
  int first_page(int group, int position) const;

  /// Pages of the first group, if it had all memory.
  int pages() const { return slabs() * groups_.front().slab_pages; }
  /// Pages of a group that `take` can give, those that would be evicted included, if no other group takes any.
  int available(int group = 0) const;
  /// Whether `take` can give so many pages of each group.
  bool has_room(const PageCounts& wanted) const;
  /// The same where nobody had any.
  bool holds(const PageCounts& wanted) const;
  int free_pages(int group = 0) const { return groups_[static_cast<size_t>(group)].pool.free_pages(); }
  int users(int group, int32_t page) const { return groups_[static_cast<size_t>(group)].pool.users(page); }
  /// Slabs that no group has.
  int free_slabs() const { return static_cast<int>(free_slabs_.size()); }
  /// Memory of the bookkeeping.
  size_t bytes() const;

  /// A page of one's own, with undefined contents. Throws InternalError if none is available.
  int32_t take(int group);
  /// Gives up one's use of `pages`.
  void release(int group, std::span<const int32_t> pages);
  void release(int group, int32_t page);
  /// Finds the longest known prefix of `tokens` that every group still has what it needs of, and makes the caller a user of these
  /// pages: appends to pages[g] those of group g, of which the first is first_page(g, tokens found). Only full pages are known,
  /// so the last tokens % page tokens are never found. Returns the pages of the first group.
  int match(std::span<const int32_t> tokens, std::span<std::vector<int32_t>* const> pages);
  /// Offers `page` of the first group, now full with `tokens`, to others; `parent` is the page before it (PrefixIndex::kRoot for
  /// the first), itself published. If an equal page is known, the caller becomes a user of that one instead. Returns the page to
  /// go on with.
  int32_t publish(int32_t parent, std::span<const int32_t> tokens, int32_t page);
  /// The same for the page of another group that has the tokens of page `node` of the first, which is published.
  int32_t publish_beside(int32_t node, int group, int32_t page);

 private:
  struct Group {
    int window = 0;
    int slab_pages = 0;
    std::vector<int32_t> first_pages;  // [slabs]
    BlockPool pool;
    IdlePages idle;               // known pages that nobody uses
    std::vector<int> used;        // [slabs] pages that somebody uses
    std::vector<int32_t> beside;  // of other groups than the first, by page of the first: the page with its tokens, or kNone
    std::vector<int32_t> node;    // and the reverse
  };

  Group& at(int group) { return groups_[static_cast<size_t>(group)]; }
  int slabs() const { return static_cast<int>(owners_.size()); }
  static int slab_of(const Group& group, int32_t page);
  void add_group(int window, int slab_pages, std::vector<int32_t> first_pages, int limit);
  /// Pages of a group that it has, and nobody uses.
  static int spare(const Group& group) { return group.pool.free_pages() + group.idle.count(); }
  /// Slabs of a group of which nobody uses a page.
  int unused_slabs(int group) const;
  bool is_known(int group, int32_t page) const;
  void retain(int group, int32_t page);
  /// Makes pages of a group free if nothing else is to go, or none.
  void make_room(int group);
  void adopt(int slab, int group);
  /// Takes a slab of which nobody uses a page from its group.
  void strip(int slab);
  /// Forgets a page that nobody uses: it is free afterwards.
  void evict(int group, int32_t page);
  void forget(int group, int32_t page);

  int page_;
  bool share_;
  std::vector<Group> groups_;
  std::vector<int> owners_;      // [slabs] group, or -1
  std::vector<int> free_slabs_;  // the lowest last
  std::optional<PrefixIndex> index_;
};

}  // namespace sluice
