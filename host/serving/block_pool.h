#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

/// Who uses which page of one group: reference counts and a list of free pages. Knows nothing of what pages hold. Every operation
/// but `withdraw` is O(1), and none allocates.
///
/// A page is free (in the list), used (one or more users), set aside (without users, but kept by whoever asked `release` and got
/// 0 back, until `recycle` or `retain`), or not in the pool.
class BlockPool {
 public:
  /// Pages 0 ... `pages` - 1, all free.
  explicit BlockPool(int pages);
  /// No page yet; numbers of pages are below `limit`.
  static BlockPool empty(int limit);

  /// Makes pages [first, first + count), which were not in the pool, free.
  void add(int32_t first, int count);
  /// Takes pages [first, first + count), all of which are free, out of the pool.
  void withdraw(int32_t first, int count);

  int free_pages() const { return static_cast<int>(free_.size()); }
  size_t bytes() const { return (users_.capacity() + free_.capacity()) * sizeof(int32_t); }
  int users(int32_t page) const { return users_[static_cast<size_t>(page)]; }

  /// A free page with one user, or -1 if there is none.
  int32_t allocate();
  /// One more user of a page that is used or set aside.
  void retain(int32_t page);
  /// One user less; returns how many are left. Throws InternalError if it had none.
  int release(int32_t page);
  /// Puts a page without users back into the list of free pages.
  void recycle(int32_t page);

 private:
  BlockPool() = default;

  std::vector<int32_t> users_;
  std::vector<int32_t> free_;  // a stack: the page freed last is the warmest in the caches
};

}  // namespace sluice
