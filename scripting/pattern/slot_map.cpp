#include "scripting/pattern/slot_map.h"

#include <algorithm>

namespace sluice {

SlotMap::SlotMap(const PatternAnalysis& analysis, int length) : last_(analysis.last_readers(length)) {
  for (size_t token = 0; token < last_.size(); ++token) last_[token] = std::max(last_[token], static_cast<int32_t>(token));
  slots_ = slots_of(last_);
  std::vector<int32_t> free;  // by slot
  for (size_t token = 0; token < last_.size(); ++token) {
    const auto slot = static_cast<size_t>(slots_[token]);
    if (slot == free.size()) {
      free.push_back(0);
      first_tokens_.push_back(static_cast<int32_t>(token));
    }
    free_from_.push_back(free[slot]);
    free[slot] = last_[token] + 1;
  }
}

int SlotMap::used(int tokens) const {
  return static_cast<int>(std::lower_bound(first_tokens_.begin(), first_tokens_.end(), tokens) - first_tokens_.begin());
}

}  // namespace sluice
