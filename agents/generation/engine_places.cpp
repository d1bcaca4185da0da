#include "agents/generation/engine_places.h"

#include <algorithm>

namespace sluice {
namespace {

using Kind = PlaceOffer::Kind;

bool is_used_by(const EnginePlace& engine, const std::string& caller) {
  return engine.busy && std::find(engine.callers.begin(), engine.callers.end(), caller) != engine.callers.end();
}

bool is_used_by_alone(const EnginePlace& engine, const std::string& caller) {
  return engine.callers.size() == 1 && is_used_by(engine, caller);
}

/// Engines that the caller who has the fewest would be left with, of those who use this one.
int left_to_its_callers(const EnginePlace& engine, std::span<const EnginePlace> engines) {
  auto fewest = static_cast<int>(engines.size());
  for (const std::string& caller : engine.callers) {
    const auto has =
        std::count_if(engines.begin(), engines.end(), [&](const EnginePlace& each) { return is_used_by(each, caller); });
    fewest = std::min(fewest, static_cast<int>(has) - 1);
  }
  return fewest;
}

std::string engine_to_close(std::span<const EnginePlace* const> candidates, std::span<const EnginePlace> engines) {
  const auto closed = std::find_if(candidates.begin(), candidates.end(), [](const EnginePlace* each) { return each->closed; });
  if (closed != candidates.end()) return (*closed)->flow;
  return (*std::max_element(candidates.begin(), candidates.end(),
                            [&](const EnginePlace* a, const EnginePlace* b) {
                              return left_to_its_callers(*a, engines) < left_to_its_callers(*b, engines);
                            }))
      ->flow;
}

}  // namespace

PlaceLimits place_limits(int most_engines, std::optional<int> flows) {
  PlaceLimits limits;
  limits.engines = flows ? std::min(most_engines, *flows + 1) : most_engines;
  limits.places = std::max(1, limits.engines - 1);
  const bool each_has_one = flows && *flows < limits.engines;
  limits.of_caller = each_has_one ? limits.places : std::max(1, limits.places - 1);
  limits.dear = each_has_one ? limits.places : std::max(1, limits.places / 2);
  return limits;
}

PlaceOffer offer_place(const PlaceLimits& limits, const std::string& caller, bool dear, std::span<const EnginePlace> engines) {
  const auto count = [&](auto&& condition) { return static_cast<int>(std::count_if(engines.begin(), engines.end(), condition)); };
  const bool may_have_one = count([&](const EnginePlace& each) { return is_used_by_alone(each, caller); }) < limits.of_caller;
  const bool only_dear = dear && count([](const EnginePlace& each) { return each.dear; }) >= limits.dear;
  if (may_have_one) {
    if (static_cast<int>(engines.size()) < limits.places && !only_dear) return {Kind::kFree, {}};
    const EnginePlace* oldest = nullptr;
    for (const EnginePlace& each : engines) {
      if (each.busy || (only_dear && !each.dear)) continue;
      if (oldest == nullptr || each.last_used < oldest->last_used) oldest = &each;
    }
    if (oldest != nullptr) return {Kind::kIdle, oldest->flow};
  }
  // Who has all that one may have waits for one of its own. A light flow does not wait for the passes of a dear one.
  std::vector<const EnginePlace*> candidates;
  for (const bool any_kind : {false, true}) {
    for (const EnginePlace& each : engines) {
      const bool helps = each.busy && (may_have_one || is_used_by_alone(each, caller));
      if (helps && (any_kind || each.dear == only_dear)) candidates.push_back(&each);
    }
    if (!candidates.empty()) break;
  }
  return {may_have_one ? Kind::kLater : Kind::kLaterThanOwn, engine_to_close(candidates, engines)};
}

}  // namespace sluice
