#pragma once

#include <chrono>
#include <thread>

namespace sluice::testing {

/// Waits until `condition` holds, a minute at most; returns whether it ever did.
template <class Condition>
bool eventually(const Condition& condition) {
  using Clock = std::chrono::steady_clock;
  for (const auto limit = Clock::now() + std::chrono::minutes(1); Clock::now() < limit;
       std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
    if (condition()) return true;
  }
  return condition();
}

}  // namespace sluice::testing
