#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

/// Who uses which page: reference counts and a list of free pages. Knows nothing of what pages hold. Every operation is O(1), and
/// none allocates.
///
/// A page is free (in the list), used (one or more users), or set aside (without users, but kept by whoever asked `release` and
/// got 0 back, until `recycle` or `retain`).
class BlockPool {
 public:
  /// Pages 0 ... `pages` - 1, all free.
  explicit BlockPool(int pages);

  int free_pages() const { return static_cast<int>(free_.size()); }
  size_t bytes() const { return (users_.capacity() + free_.capacity()) * sizeof(int32_t); }
  int users(int32_t page) const { return std::max(users_[static_cast<size_t>(page)], 0); }

  /// A free page with one user, or -1 if there is none.
  int32_t allocate();
  /// One more user of a page that is used or set aside. Throws InternalError for a free one.
  void retain(int32_t page);
  /// One user less; returns how many are left. Throws InternalError if it had none.
  int release(int32_t page);
  /// Puts a page that is set aside back into the list of free pages. Throws InternalError for any other.
  void recycle(int32_t page);

 private:
  static constexpr int32_t kFree = -1;

  std::vector<int32_t> users_;  // or kFree
  std::vector<int32_t> free_;   // a stack: the page freed last is the warmest in the caches
};

}  // namespace sluice
