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
};

/// Which place is to be given up where they become too few: the oldest one of the network that has most of them. So nobody loses
/// a place to somebody who has more. Nothing if there are none.
std::optional<size_t> place_to_give_up(const std::vector<HeldPlace>& places);

}  // namespace sluice
