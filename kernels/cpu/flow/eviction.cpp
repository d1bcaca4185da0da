#include "kernels/cpu/flow/eviction.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "kernels/cpu/selection/topk.h"
#include "scripting/base/error.h"

namespace sluice::cpu {
namespace {

bool may_leave(const Eviction& eviction, const HeldTokens& held, int position) {
  if (position < eviction.first || position > held.newest - eviction.recent) return false;
  return held.last_readers.empty() || held.last_readers[static_cast<size_t>(position)] < held.first_row;
}

}  // namespace

std::span<const SlotMove> Leavers::find(const Eviction& eviction, const HeldTokens& held) {
  moves_.clear();
  const auto tokens = static_cast<int>(held.positions.size());
  const int leaving = tokens - held.staying;
  if (leaving <= 0) return {};
  slots_.clear();
  for (int slot = 0; slot < tokens; ++slot) {
    if (may_leave(eviction, held, held.positions[static_cast<size_t>(slot)])) slots_.push_back(slot);
  }
  if (static_cast<int>(slots_.size()) < leaving) {
    throw InternalError(fmt::format("eviction: {} tokens have to leave, and {} may", leaving, slots_.size()));
  }
  // NaN is below all numbers.
  const auto key = [&](int32_t slot) { return order_key(std::bit_cast<uint32_t>(held.scores[static_cast<size_t>(slot)])); };
  const auto before = [&](int32_t a, int32_t b) {
    const uint32_t a_key = key(a);
    const uint32_t b_key = key(b);
    return a_key != b_key ? a_key < b_key : held.positions[static_cast<size_t>(a)] < held.positions[static_cast<size_t>(b)];
  };
  const auto last = slots_.begin() + (leaving - 1);
  std::nth_element(slots_.begin(), last, slots_.end(), before);
  slots_.resize(static_cast<size_t>(leaving));
  std::sort(slots_.begin(), slots_.end());
  auto gone = std::lower_bound(slots_.begin(), slots_.end(), held.staying);
  auto gap = slots_.begin();
  for (int32_t slot = held.staying; slot < tokens; ++slot) {
    if (gone != slots_.end() && *gone == slot) {
      ++gone;
    } else {
      moves_.push_back({slot, *gap++});
    }
  }
  return moves_;
}

}  // namespace sluice::cpu
