#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "host/serving/block_pool.h"
#include "host/serving/idle_pages.h"
#include "host/serving/prefix_index.h"
#include "kernels/device/page_pool.h"
#include "scripting/pattern/page_lives.h"

namespace sluice {

/// Most groups that a pool has (CacheGroup).
inline constexpr int kMostGroups = 16;
/// A number of pages for each group.
using PageCounts = std::array<int, kMostGroups>;

PageCounts operator+(PageCounts a, const PageCounts& b);

/// Pages that all of their users are about to give up.
struct FreedPages {
  PageCounts pages{};
  std::vector<int> of_slabs;  // [slabs]
};

/// Pages as requests see them: taken, shared with whoever has the same prefix, given back. A page given back that others
/// may want again is kept until its room is needed. Nothing allocates but where groups and sharers are added.
///
/// Pages are of groups of layers (CacheGroup), which share memory out slab by slab (PoolMap): a group that needs pages takes a
/// slab that no group has, or one of which another group uses no page. The first group keeps all tokens, but where no prefix is
/// shared. Prefixes are found by its pages; those of other groups are found with the page of the first that has the same tokens.
///
/// Engines may share a cache: each uses the groups with K and V, and the group with the fields of its flow. Of their requests
/// only an engine's own give way to each other, so each engine is promised the pages that the first of its requests will want,
/// and nobody takes those (`promise`). One that has none claims what its first one wants: others admit nobody in its way
/// (`claim`).
class PageCache {
 public:
  struct Options {
    int page = 16;             // tokens
    bool share = true;         // else no page is ever shared
    std::vector<int> windows;  // by group: tokens back that a row sees, itself included; 0: all, as the first must
    std::vector<std::shared_ptr<const PageLives>> lives = {};  // by group: which pages rows need; null: the window says it
  };
  PageCache(const PoolMap& map, const Options& options);
  /// One group of `pages` pages that keeps all tokens.
  PageCache(int pages, int page, bool share);

  /// Numbers of groups are below this.
  int groups() const { return static_cast<int>(groups_.size()); }
  /// Tells of a group of fields that the pool has got, whose number is `group`. Pages of it are found, as `match` says, even
  /// where nobody has them. Throws InputError where there are too many groups.
  void add_fields(const PoolMap& map, int group);
  /// Nobody uses a page of it.
  void remove_fields(int group);
  /// `remove_fields` leaves a gap.
  bool has_group(int group) const { return at(group).slab_pages > 0; }
  bool has_fields(int group) const { return at(group).has_fields; }

  /// An engine that shares the cache, as long as it lives; a number for each.
  int add_sharer();
  void remove_sharer(int sharer);
  bool is_shared() const { return sharers_ > 1; }
  /// What `sharer` is to find room for, whatever others take, from now on.
  void promise(int sharer, const PageCounts& pages) { promises_[static_cast<size_t>(sharer)] = pages; }
  /// All that is promised, but to `sharer` (-1: to anybody).
  PageCounts promised(int but_to = -1) const;
  /// `sharer` has nothing and waits for so many pages, from its first call on until `drop_claim`.
  void claim(int sharer, const PageCounts& pages);
  void drop_claim(int sharer);
  /// What `sharer` is to leave to those who wait: claims of before its own, or all if it has none.
  PageCounts claimed_before(int sharer) const;
  /// Uses of pages: a page counts as often as it has users.
  int64_t uses() const { return uses_; }

  int page() const { return page_; }
  /// Whether pages may be shared.
  bool shares() const { return share_; }
  /// 0: the group keeps all tokens.
  int window(int group) const { return groups_[static_cast<size_t>(group)].window; }
  /// The first page of a sequence, counted from its beginning, that a group needs for rows from `position` on.
  int first_page(int group, int position) const;
  /// Null: a group needs all pages from the first on.
  const PageLives* lives(int group) const { return at(group).lives.get(); }

  /// Pages of the first group, if it had all memory.
  int pages() const { return slabs() * groups_.front().slab_pages; }
  /// Pages of a group that `take` can give, those that would be evicted included, if no other group takes any.
  int available(int group = 0) const;
  /// Whether `make_room` would succeed.
  bool has_room(const PageCounts& wanted) const { return has_room(wanted, nullptr); }
  /// The same once `freed` have been given up.
  bool has_room(const PageCounts& wanted, const FreedPages& freed) const { return has_room(wanted, &freed); }
  /// The same where nobody had any.
  bool holds(const PageCounts& wanted) const;
  /// Moves slabs between groups so that `take` gives so many pages of each group, in any order, if nothing is released meanwhile.
  /// False, and nothing happens, where that cannot be.
  bool make_room(const PageCounts& wanted);
  /// None, with room for counts of all slabs.
  FreedPages no_pages() const { return {.pages = {}, .of_slabs = std::vector<int>(owners_.size(), 0)}; }
  /// Adds a page that is used.
  void add_freed(int group, int32_t page, FreedPages& freed) const;
  int free_pages(int group = 0) const { return groups_[static_cast<size_t>(group)].free; }
  int users(int group, int32_t page) const;
  /// Slabs that no group has.
  int free_slabs() const { return static_cast<int>(free_slabs_.size()); }
  /// Memory of the bookkeeping.
  size_t bytes() const;

  /// A page of one's own, with undefined contents, of the slab of which most pages are used: so slabs become unused soonest. No
  /// slab that somebody was promised is begun while another of the group has an idle page; where the caller `packs`, none at all.
  /// Throws InternalError if none is available.
  int32_t take(int group, bool packs = false);
  /// Gives up one's use of `pages`.
  void release(int group, std::span<const int32_t> pages);
  void release(int group, int32_t page);
  /// Stands for a page of fields that nobody has, and for one that is not needed, in what `match` gives.
  static constexpr int32_t kMissing = -1;
  /// Finds the longest known prefix of `tokens` that every group still has what it needs of, and makes the caller a user of these
  /// pages: appends to pages[g] those of group g, of which the first is first_page(g, tokens found). Groups whose pages[g] is
  /// null do not matter, and of fields any page may be missing. Only full pages are known, so the last tokens % page tokens are
  /// never found. Returns the pages of the first group.
  int match(std::span<const int32_t> tokens, std::span<std::vector<int32_t>* const> pages);
  /// Offers `page` of the first group, now full with `tokens`, to others; `parent` is the page before it (PrefixIndex::kRoot for
  /// the first), itself published. If an equal page is known, the caller becomes a user of that one instead. Returns the page to
  /// go on with.
  int32_t publish(int32_t parent, std::span<const int32_t> tokens, int32_t page);
  /// The same for the page of another group that has the tokens of page `node` of the first, which is published.
  int32_t publish_beside(int32_t node, int group, int32_t page);
  /// Changes whenever a page of the first group becomes idle, or is touched.
  int64_t idled() const { return idled_; }
  /// A page of the first group is wanted: if it is idle, others go before it.
  void touch(int32_t page);
  /// Makes a page of the first group known by itself, full or not: not as part of a prefix, but as long as it would be. Nothing
  /// happens if it is known.
  void publish_apart(int32_t page) {
    if (index_ && serial(page) == 0) index_->insert_apart(place_of(at(0), page));
  }
  /// Of what a page of the first group holds that is known to others: another number as soon as it is not. 0: nobody knows it.
  uint64_t serial(int32_t page) const { return index_ ? index_->serial(place_of(at(0), page)) : 0; }

 private:
  static constexpr int kNobody = -1;  // who owns a slab that no group has

  // Inside, a page is known by its place among all that its group could have, which has no gaps: slab * slab_pages + i. Outside
  // it is known by its number (PoolMap).
  struct Group {
    int window = 0;
    int slab_pages = 0;  // 0: there is no such group any more
    bool has_fields = false;
    std::vector<int32_t> first_pages;  // [slabs] numbers
    std::vector<BlockPool> slabs;      // [slabs] who uses which of a slab's pages
    std::vector<int> used;             // [slabs] pages that somebody uses
    int free = 0;                      // pages in slabs of the group that are free
    int unused = 0;                    // slabs of the group of which nobody uses a page
    IdlePages idle;                    // known pages that nobody uses
    std::vector<int32_t> beside = {};  // of other groups than the first, by page of the first: the page with its tokens, or kNone
    std::vector<int32_t> node = {};    // and the reverse
    std::shared_ptr<const PageLives> lives = nullptr;
  };

  Group& at(int group) { return groups_[static_cast<size_t>(group)]; }
  const Group& at(int group) const { return groups_[static_cast<size_t>(group)]; }
  int slabs() const { return static_cast<int>(owners_.size()); }
  static int32_t place_of(const Group& group, int32_t number);
  static int32_t number_of(const Group& group, int32_t place);
  Group make_group(int window, int slab_pages, std::vector<int32_t> first_pages) const;
  Group make_group(int window, const PoolMap& map, int index) const;
  /// Whether a group needs a page for rows from `position` on.
  bool needs(int group, int page, int position) const {
    const PageLives* const lives = this->lives(group);
    return page >= first_page(group, position) && (lives == nullptr || lives->is_needed(page, position));
  }
  /// Pages of a group that it has, and nobody uses.
  static int spare(const Group& group) { return group.free + group.idle.count(); }
  bool has_room(const PageCounts& wanted, const FreedPages* freed) const;
  /// Whether what is promised could still be had once a group takes a page of a slab of which nobody uses a page.
  bool can_miss_slab(int group) const;
  /// Evicts the page that has been idle longest of those in slabs of which somebody uses a page; false if there is none.
  bool evict_in_used_slab(int group);
  bool is_known(int group, int32_t place) const;
  void retain(int group, int32_t place);
  void release_place(int group, int32_t place);
  /// Makes a page of a group free. False if it has none to give, and no other group a slab.
  bool free_a_page(int group, bool packs);
  /// Gives a group a slab: one that no group has, or one that another does not use, and can miss where it wants `wanted` pages.
  bool give_slab(int group, const PageCounts& wanted);
  void adopt(int slab, int group);
  /// Takes a slab of which nobody uses a page from its group.
  void strip(int slab);
  /// Of a group's slabs of which nobody uses a page, the one that was used longest ago.
  int coldest_unused(const Group& group, int index);
  int fullest_with_free_page(int group) const;
  /// Forgets a page that nobody uses: it is free afterwards.
  void evict(int group, int32_t place);
  void forget(int group, int32_t place);

  int page_;
  bool share_;
  std::vector<Group> groups_;
  std::vector<int> owners_;  // [slabs] group, or -1
  std::vector<int> free_slabs_;
  std::vector<int> idle_seen_;  // [slabs] of `coldest_unused`
  int64_t uses_ = 0;
  int64_t idled_ = 0;
  struct Claim {
    int sharer = 0;
    PageCounts pages{};
  };
  int sharers_ = 0;
  std::vector<std::optional<PageCounts>> promises_;  // by sharer; none: it is gone
  std::vector<Claim> claims_;                        // the oldest first
  std::optional<PrefixIndex> index_;                 // of places
};

}  // namespace sluice
