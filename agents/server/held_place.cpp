#include "agents/server/held_place.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace sluice {

std::optional<size_t> place_to_give_up(const std::vector<HeldPlace>& places) {
  if (places.empty()) return std::nullopt;
  std::unordered_map<std::string_view, size_t> count;
  for (const HeldPlace& place : places) ++count[place.network];
  const auto stays_longer = [&](const HeldPlace& a, const HeldPlace& b) {
    return std::tuple(count[b.network], a.since) < std::tuple(count[a.network], b.since);
  };
  return static_cast<size_t>(std::min_element(places.begin(), places.end(), stays_longer) - places.begin());
}

}  // namespace sluice
