#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

/// Pages that nobody uses but somebody may want again, in the order of their last use. Everything is O(1) and in arrays by page:
/// nothing allocates after construction.
class IdlePages {
 public:
  static constexpr int32_t kNone = -1;

  /// Numbers of pages are below `limit`.
  explicit IdlePages(int limit) : links_(static_cast<size_t>(limit)) {}

  int count() const { return count_; }
  bool contains(int32_t page) const { return links_[static_cast<size_t>(page)].idle; }
  size_t bytes() const { return links_.capacity() * sizeof(Link); }
  /// The page that has been idle longest, or kNone.
  int32_t oldest() const { return oldest_; }
  /// The page that became idle after `page`, or kNone.
  int32_t newer(int32_t page) const { return links_[static_cast<size_t>(page)].newer; }
  void add(int32_t page);
  /// Throws InternalError for a page that is not idle.
  void remove(int32_t page);

 private:
  struct Link {
    int32_t older = kNone;
    int32_t newer = kNone;
    bool idle = false;
  };

  std::vector<Link> links_;  // by page
  int32_t oldest_ = kNone;
  int32_t newest_ = kNone;
  int count_ = 0;
};

}  // namespace sluice
