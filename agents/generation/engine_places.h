#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agents/generation/flow_engine.h"

namespace sluice {

/// How many engines there may be, and whose.
struct PlaceLimits {
  int engines = 1;    // dense attention included
  int places = 1;     // that flows share. Where there are several engines, one more is kept for dense attention
  int of_caller = 1;  // places at once with engines that nobody else uses: who comes next finds one
  int dear = 1;       // places with engines whose passes may take seconds: the others are for light flows
};

/// `flows`: how many there are at all; nothing: any number. Where each has a place, nobody needs to leave one to others.
PlaceLimits place_limits(int most_engines, std::optional<int> flows);

/// An engine that has one of the places that flows share.
struct EnginePlace {
  std::string flow;
  bool dear = false;
  bool busy = false;
  GenerationClock::time_point last_used;
  std::vector<std::string> callers;  // of its tasks
  bool closed = false;               // takes no more tasks, because somebody waits for its place
};

/// What a task whose flow has no engine may do.
struct PlaceOffer {
  enum class Kind : uint8_t {
    kFree,          // make an engine
    kIdle,          // make one in place of that of `flow`
    kLater,         // wait. The engine of `flow` is to take no more tasks, so that its place will be free
    kLaterThanOwn,  // the same, of the caller alone: he has all that one may have, and others may use what he uses
  };
  Kind kind = Kind::kFree;
  std::string flow;
};

/// `engines`: all that have a place, the one made first first.
///
/// Who waits closes an engine, else those who use it could keep it busy for ever. One engine is closed for all whom it helps, and
/// it stays the same from one call to the next; before that it is the one whose callers have the most others.
PlaceOffer offer_place(const PlaceLimits& limits, const std::string& caller, bool dear, std::span<const EnginePlace> engines);

}  // namespace sluice
