#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace sluice {

/// What slots wait for: something new, or the end. Shared by threads.
class SlotSignal {
 public:
  /// There is something new.
  void wake();
  void stop();
  bool is_stopping() const;
  /// How often it was woken.
  uint64_t count() const;
  /// Until it is stopped, was woken more than `seen` times, or `time` has passed.
  void wait(std::chrono::steady_clock::duration time, uint64_t seen = UINT64_MAX) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  uint64_t count_ = 0;
  bool stopping_ = false;
};

}  // namespace sluice
