#include "scripting/pattern/head_slots.h"

#include <algorithm>

namespace sluice {

int HeadSlots::used(int tokens) const {
  int most = 0;
  for (const SlotMap& map : maps_) most = std::max(most, map.used(tokens));
  return most;
}

int HeadSlots::free_from(int token) const {
  int last = 0;
  for (const SlotMap& map : maps_) last = std::max(last, map.free_from(token));
  return last;
}

bool HeadSlots::follows(int token) const {
  return std::all_of(maps_.begin(), maps_.end(), [&](const SlotMap& map) { return map.slot(token) > map.slot(token - 1); });
}

}  // namespace sluice
