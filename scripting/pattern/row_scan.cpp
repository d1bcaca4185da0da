#include "scripting/pattern/row_scan.h"

#include <algorithm>
#include <bit>
#include <list>
#include <mutex>
#include <span>
#include <utility>

namespace sluice {
namespace {

RowScan scan(const Pattern& pattern, int length) {
  RowScan found{std::vector<int32_t>(static_cast<size_t>(length), -1)};
  std::vector<uint32_t> unread(static_cast<size_t>((length + 31) / 32), ~uint32_t{0});
  std::vector<uint32_t> row(unread.size());
  for (int i = length - 1; i >= 0; --i) {
    const std::span<uint32_t> seen = std::span(row).first(static_cast<size_t>(i) / 32 + 1);
    pattern.row(i, i + 1, seen);
    uint32_t any = 0;
    for (size_t word = 0; word < seen.size(); ++word) {
      any |= seen[word];
      for (uint32_t first = seen[word] & unread[word]; first != 0; first &= first - 1)
        found.last[word * 32 + static_cast<size_t>(std::countr_zero(first))] = i;
      unread[word] &= ~seen[word];
    }
    if (any == 0) ++found.blind;
  }
  return found;
}

/// The last scans.
class ScanMemory {
 public:
  std::shared_ptr<const RowScan> find(const Pattern& pattern, int length) {
    const std::lock_guard lock(mutex_);
    const auto is_it = [&](const Entry& entry) { return entry.length == length && entry.pattern == pattern; };
    const auto found = std::find_if(entries_.begin(), entries_.end(), is_it);
    if (found == entries_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found);
    return found->scan;
  }
  void keep(const Pattern& pattern, int length, const std::shared_ptr<const RowScan>& scan) {
    constexpr size_t kMostBytes = size_t{16} << 20;
    constexpr size_t kMostEntries = 64;
    const std::lock_guard lock(mutex_);
    entries_.push_front({pattern, length, scan});
    bytes_ += bytes_of(entries_.front());
    while (entries_.size() > 1 && (bytes_ > kMostBytes || entries_.size() > kMostEntries)) {
      bytes_ -= bytes_of(entries_.back());
      entries_.pop_back();
    }
  }

 private:
  struct Entry {
    Pattern pattern;
    int length;
    std::shared_ptr<const RowScan> scan;
  };
  static size_t bytes_of(const Entry& entry) { return entry.scan->last.size() * sizeof(int32_t); }

  std::mutex mutex_;
  std::list<Entry> entries_;  // the last one that was asked for first
  size_t bytes_ = 0;
};

}  // namespace

std::shared_ptr<const RowScan> scan_rows(const Pattern& pattern, int length) {
  static ScanMemory memory;
  if (auto known = memory.find(pattern, length)) return known;
  auto found = std::make_shared<const RowScan>(scan(pattern, length));
  memory.keep(pattern, length, found);
  return found;
}

}  // namespace sluice
