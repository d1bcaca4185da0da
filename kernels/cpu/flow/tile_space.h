#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace sluice::cpu::flows {

/// Offsets of buffers whose lifetimes do not overlap, first fit.
class TileSpace {
 public:
  int64_t take(int64_t size) {
    for (auto& [offset, free] : free_) {
      if (free < size) continue;
      const int64_t taken = offset;
      const int64_t left = free - size;
      free_.erase(taken);
      if (left > 0) free_[taken + size] = left;
      return taken;
    }
    const int64_t taken = end_;
    end_ += size;
    return taken;
  }
  void give_back(int64_t offset, int64_t size) {
    auto after = free_.upper_bound(offset);
    if (after != free_.end() && offset + size == after->first) {
      size += after->second;
      after = free_.erase(after);
    }
    if (after != free_.begin()) {
      auto before = std::prev(after);
      if (before->first + before->second == offset) {
        before->second += size;
        return;
      }
    }
    free_[offset] = size;
  }
  int64_t peak() const { return end_; }

 private:
  std::map<int64_t, int64_t> free_;  // offset -> size
  int64_t end_ = 0;
};

}  // namespace sluice::cpu::flows
