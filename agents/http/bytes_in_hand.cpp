#include "agents/http/bytes_in_hand.h"

#include <algorithm>
#include <utility>

#include "scripting/base/freed_memory.h"

namespace sluice {

std::shared_ptr<void> BytesInHand::take(const std::string& caller, size_t bytes) {
  if (bytes <= kSmall) return std::make_shared<char>();
  auto give_back = [caller, bytes](void* all) { static_cast<BytesInHand*>(all)->give_back(caller, bytes); };
  {
    const std::lock_guard lock(mutex_);
    const auto found = taken_.find(caller);
    const size_t own = found == taken_.end() ? 0 : found->second;
    const size_t left_by_others = most_ - std::min(most_, all_ - own);
    if (all_ > 0 && own + bytes > left_by_others / 2) return nullptr;
    taken_[caller] = own + bytes;
    all_ += bytes;
    largest_ = std::max(largest_, all_);
  }
  // Without the lock: what cannot be made gives the room back.
  return {this, std::move(give_back)};
}

void BytesInHand::give_back(const std::string& caller, size_t bytes) {
  constexpr size_t kMuch = size_t{4} << 20;
  bool was_much = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = taken_.find(caller);
    found->second -= bytes;
    if (found->second == 0) taken_.erase(found);
    all_ -= bytes;
    if (all_ == 0) was_much = std::exchange(largest_, 0) >= kMuch;
  }
  if (was_much) give_back_freed_memory();
}

}  // namespace sluice
