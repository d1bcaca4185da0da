#include "agents/orchestrator/slot_signal.h"

namespace sluice {

void SlotSignal::wake() {
  {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  changed_.notify_all();
}

void SlotSignal::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

bool SlotSignal::is_stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

uint64_t SlotSignal::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

void SlotSignal::wait(std::chrono::steady_clock::duration time, uint64_t seen) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [&] { return stopping_ || count_ > seen; });
}

}  // namespace sluice
