#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

/// Who uses which page of a pool: reference counts and a list of free pages. Knows nothing of what pages hold. Every
/// operation is O(1) and allocates nothing.
///
/// A page is free (in the list), used (one or more users), or set aside: without users, but kept by whoever asked `release`
/// and got 0 back, until `recycle` or `retain`.
class BlockPool {
 public:
  explicit BlockPool(int pages);

  int pages() const { return static_cast<int>(users_.size()); }
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
  std::vector<int32_t> users_;
  std::vector<int32_t> free_;  // a stack: the page freed last is the warmest in the caches
};

}  // namespace sluice
