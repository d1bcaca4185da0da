#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

/// One of few places, and who has it: a connection, a stream.
struct HeldPlace {
  std::string network;  // `network_of` its address
  std::chrono::steady_clock::time_point since;
  bool may_go = true;  // it counts in any case
};

/// Which place is to be given up for somebody of the network `newcomer`: the oldest of whoever has most of them, among those that
/// may go and whose network has no less than the newcomer's. So nobody loses a place to somebody who has more. Nothing if there
/// is none.
std::optional<size_t> place_to_give_up(const std::vector<HeldPlace>& places, const std::string& newcomer);

}  // namespace sluice
