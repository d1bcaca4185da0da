#pragma once

#include <cstdint>
#include <vector>

#include "scripting/pattern/slot_map.h"

namespace sluice {

/// Where the KV heads of a layer keep the tokens of a sequence: each in slots of its own, so that the cache has as many as the
/// head that keeps the most. Head h has its tokens where the map at place h modulo their number says.
class HeadSlots {
 public:
  /// One at least, all for the same length.
  explicit HeadSlots(std::vector<SlotMap> maps) : maps_(std::move(maps)) {}

  int heads() const { return static_cast<int>(maps_.size()); }
  const SlotMap& of(int head) const { return maps_[static_cast<size_t>(head)]; }
  int length() const { return maps_.front().length(); }
  /// Slots that the first `tokens` tokens have taken, in the head that has taken the most.
  int used(int tokens) const;
  /// The first query that needs in no head what was in the token's slot before.
  int free_from(int token) const;
  /// Whether the token's slot is behind that of the token before it, in every head.
  bool follows(int token) const;

 private:
  std::vector<SlotMap> maps_;
};

}  // namespace sluice
