#include "agents/http/held_place.h"

#include <cstdint>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace sluice {

std::optional<size_t> place_to_give_up(const std::vector<HeldPlace>& places, const std::string& newcomer) {
  std::unordered_map<std::string_view, size_t> count;
  for (const HeldPlace& place : places) ++count[place.network];
  const size_t least = count[newcomer];
  std::optional<size_t> chosen;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!places[i].may_go || count[places[i].network] < least) continue;
    const auto order = [&](const HeldPlace& place) {
      return std::tuple(-static_cast<int64_t>(count[place.network]), place.since);
    };
    if (!chosen || order(places[i]) < order(places[*chosen])) chosen = i;
  }
  return chosen;
}

}  // namespace sluice
