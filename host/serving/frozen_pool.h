#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/serving/page_cache.h"
#include "host/serving/segment_index.h"

namespace sluice {

/// Text that stays known though nobody asks for it now.
struct FrozenText {
  uint64_t id = 0;
  std::string tenant;  // whose it is
  std::string extra_key;
  int tokens = 0;  // whole blocks
  int pages = 0;
  uint64_t found = 0;  // requests that have copied some of it
};

/// Texts that a server is to know: documents of a knowledge base, say (SparseX, sections 4.1 and 4.2). They are found as segments
/// are. The pool uses no pages: theirs are idle like others, but the last to go where room is needed, and of these the ones of
/// the text that was found least; only what a request gives up for another in the same step may stay instead. So nobody waits for
/// a page that only a frozen text has. A text of which a page has gone goes with it.
class FrozenPool {
 public:
  /// Of all pages of the cache, those that frozen texts may have.
  static constexpr double kShare = 0.5;

  /// What it refers to must outlive it.
  FrozenPool(SegmentIndex& index, PageCache& cache) : index_(index), cache_(cache) {}
  FrozenPool(const FrozenPool&) = delete;
  FrozenPool& operator=(const FrozenPool&) = delete;

  /// Throws InputError for a text that has no whole block, or more pages than are left of those that texts may have.
  void check(std::string_view tenant, std::string_view extra_key, std::span<const int32_t> tokens);
  /// Adds a text whose blocks lie in `pages`, one each, from position 0 on; blocks at its end that nobody else could find are
  /// left out. The same text of the same tenant and name is there once. Returns its number, which no other text gets; 0: it has
  /// no block that can be found, or others took the room since it was checked.
  uint64_t add(std::string_view tenant, std::string_view extra_key, std::span<const int32_t> tokens,
               std::span<const int32_t> pages);
  /// The text is not found any more from now on. False: there is none of this number.
  bool remove(uint64_t id);
  /// A request has copied some of it.
  void count(uint64_t id);
  /// Those that are there, in the order of their numbers.
  std::vector<FrozenText> texts();
  bool is_empty() const { return texts_.empty(); }
  /// That texts have, each counted once.
  int pages() const { return pages_with({}); }

  /// Makes their pages the last to go. For every time before pages are taken.
  void stay();

 private:
  struct Kept {
    FrozenText text;
    SegmentIndex::Digest space;
    std::vector<int32_t> tokens;
    std::vector<SegmentIndex::View> views;  // by block
  };
  using Texts = std::vector<Kept>;  // by number

  std::span<const int32_t> block_of(const Kept& kept, size_t block) const;
  bool is_there(const Kept& kept) const;
  Texts::iterator find(const SegmentIndex::Digest& space, std::span<const int32_t> tokens);
  int pages_with(std::span<const SegmentIndex::View> more) const;
  /// Forgets texts of which a page has gone.
  void drop_gone();
  /// Those of `texts_` from here on, which are not found any more; but what others have, too.
  void drop_from(Texts::iterator first);
  /// The index knows its blocks, whatever it is offered.
  void freeze(const Kept& kept);

  SegmentIndex& index_;
  PageCache& cache_;
  Texts texts_;
  uint64_t last_id_ = 0;
  int64_t seen_ = -1;  // PageCache::idled
};

}  // namespace sluice
