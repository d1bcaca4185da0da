// Which of the waiting tasks get an engine.

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "agents/generation/completion_request.h"
#include "agents/generation/flow_engines.h"
#include "agents/http/http_problem.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

/// Of which a client learns no more than that the log tells it.
bool is_unexplained(const std::exception& error) {
  return dynamic_cast<const InputError*>(&error) == nullptr && dynamic_cast<const HttpProblem*>(&error) == nullptr;
}

}  // namespace

void FlowEngines::admit() {
  std::set<std::string> closed;  // before: they stay the same as long as somebody needs them
  for (const Slot& slot : slots_) {
    if (slot.closed.is_any()) closed.insert(slot.engine->flow());
  }
  while (admit_until_placed(closed)) {
  }
  std::stable_partition(waiting_.begin(), waiting_.end(), [&](const LiveTask& live) {
    const auto slot = find_slot(live.task.flow);
    return slot == slots_.end() || !has_enough(*slot, live.task.caller);
  });
}

bool FlowEngines::has_enough(const Slot& slot, const std::string& caller) const {
  const int batch = maker_.max_batch();
  return slot.users.of(caller) >= std::max(kMostChoices, batch + batch / 4);
}

bool FlowEngines::admit_until_placed(std::set<std::string> closed) {
  for (Slot& slot : slots_) slot.closed = {};  // until somebody who waits is found to need it
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    const std::string flow = next->task.flow;
    const std::string caller = next->task.caller;
    const auto slot = find_slot(flow);
    const bool is_new = slot == slots_.end();
    const bool takes_place = is_new && shares_places(flow);
    const bool dear = next->dear;
    const bool must_wait =
        is_new ? takes_place && !make_place(*next, closed) : slot->closed.holds(caller) || has_enough(*slot, caller);
    if (must_wait) {
      ++next;
      continue;
    }
    try {
      submit_to(is_new ? make_slot(*next) : *slot, *next);
    } catch (const std::exception& error) {  // it could be used when it was asked for, and no longer can
      if (options_.log && is_unexplained(error)) options_.log->error("no engine for flow \"{}\": {}", flow, error.what());
      next->fail(error);
      end_tasks(1);
    }
    next = waiting_.erase(next);
    if (!takes_place) continue;
    std::stable_partition(waiting_.begin(), waiting_.end(), [&](const LiveTask& live) {
      return live.task.caller != caller || live.task.flow == flow || live.dear != dear || !shares_places(live.task.flow);
    });
    return true;
  }
  return false;
}

bool FlowEngines::make_place(const LiveTask& live, std::set<std::string>& closed) {
  // As they are now: an engine that was idle when the line was begun may have got a task since.
  const PlaceOffer offer = offer_place(limits_, live.task.caller, live.dear, shared_places(closed));
  if (offer.kind == PlaceOffer::Kind::kIdle) drop(find_slot(offer.flow));
  if (offer.kind != PlaceOffer::Kind::kLater && offer.kind != PlaceOffer::Kind::kLaterThanOwn) return true;
  Slot& slot = *find_slot(offer.flow);
  if (offer.kind == PlaceOffer::Kind::kLater) slot.closed.everybodys = true;
  if (offer.kind == PlaceOffer::Kind::kLaterThanOwn) slot.closed.callers.insert(live.task.caller);
  closed.insert(offer.flow);
  return false;
}

void FlowEngines::submit_to(Slot& slot, LiveTask& live) {
  live.use = slot.users.take(live.task.caller);
  slot.engine->submit(live);
}

FlowEngines::Slots::iterator FlowEngines::find_slot(const std::string& flow) {
  return std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.engine->flow() == flow; });
}

std::vector<EnginePlace> FlowEngines::shared_places(const std::set<std::string>& closed) const {
  std::vector<EnginePlace> places;
  for (const Slot& slot : slots_) {
    const FlowEngine& engine = *slot.engine;
    if (!shares_places(engine.flow())) continue;
    places.push_back({engine.flow(), engine.runs_itself(), engine.busy(), engine.last_used(), slot.users.callers(),
                      closed.contains(engine.flow())});
  }
  return places;
}

FlowEngines::Slot& FlowEngines::make_slot(const LiveTask& live) {
  auto engine = maker_.make(live, limits_.engines - static_cast<int>(slots_.size()));
  return slots_.emplace_back(Slot{.engine = std::move(engine), .seconds = level_, .waits = true, .users = {}});
}

}  // namespace sluice
