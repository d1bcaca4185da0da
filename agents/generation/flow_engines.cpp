#include "agents/generation/flow_engines.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {

FlowEngines::FlowEngines(const GenerationOptions& options, const PlaceLimits& limits, EngineMaker& maker,
                         GenerationMetrics& metrics, std::function<void(int count)> ended)
    : options_(options), limits_(limits), maker_(maker), metrics_(metrics), ended_(std::move(ended)) {}

void FlowEngines::add(LiveTask live) {
  live.dear = live.task.plan && maker_.is_dear(*live.task.plan);
  waiting_.push_back(std::move(live));
}

void FlowEngines::take_turn() {
  admit();
  step_next();
  take_ended();
  drop_idle();
  publish(false);
}

bool FlowEngines::is_busy(bool by_itself) const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [&](const Slot& slot) { return slot.engine->runs_itself() == by_itself && slot.engine->busy(); });
}

void FlowEngines::cancel(const TaskMail::Cancellation& cancellation) {
  for (const Slot& slot : slots_) {
    if (slot.engine->cancel(cancellation.id, cancellation.stopped)) return;
  }
  const auto found =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const LiveTask& live) { return live.id == cancellation.id; });
  if (found == waiting_.end()) return;  // it has just ended
  metrics_.abandoned();
  waiting_.erase(found);
  end_tasks(1);
}

void FlowEngines::drop(Slots::iterator slot) {
  try {
    preemptions_ += slot->engine->stats().preemptions;
  } catch (const std::exception& error) {
    if (options_.log) options_.log->error("the engine of flow \"{}\" failed: {}", slot->engine->flow(), error.what());
  }
  end_tasks(slot->engine->take_ended());
  slots_.erase(slot);
}

void FlowEngines::fail(Slots::iterator slot, const std::exception& error) {
  FlowEngine& engine = *slot->engine;
  if (options_.log) options_.log->error("the engine of flow \"{}\" failed: {}", engine.flow(), error.what());
  const bool input = dynamic_cast<const InputError*>(&error) != nullptr;
  end_tasks(engine.take_ended() + engine.fail_all(500, input ? error.what() : "the engine failed; the server's log tells more"));
  slots_.erase(slot);
}

FlowEngines::Slots::iterator FlowEngines::next_to_step(const std::set<const FlowEngine*>& tried) {
  auto next = slots_.end();
  for (auto slot = slots_.begin(); slot != slots_.end(); ++slot) {
    if (slot->engine->runs_itself()) continue;
    const bool waits = !slot->engine->busy();
    // Who had nothing to do does not make up for that time.
    if (!waits && slot->waits) slot->seconds = std::max(slot->seconds, level_);
    slot->waits = waits;
    if (!waits && !tried.contains(slot->engine.get()) && (next == slots_.end() || slot->seconds < next->seconds)) next = slot;
  }
  return next;
}

void FlowEngines::step_next() {
  std::set<const FlowEngine*> tried;
  for (auto slot = next_to_step(tried); slot != slots_.end(); slot = next_to_step(tried)) {
    const auto begun = GenerationClock::now();
    try {
      if (!slot->engine->step()) {
        slot->waits = true;
        tried.insert(slot->engine.get());
        continue;
      }
      level_ = slot->seconds;
      slot->seconds += std::chrono::duration<double>(GenerationClock::now() - begun).count();
    } catch (const std::exception& error) {
      fail(slot, error);
    }
    return;
  }
}

void FlowEngines::take_ended() {
  for (auto slot = slots_.begin(); slot != slots_.end();) {
    const auto current = slot++;
    try {
      if (current->engine->runs_itself()) current->engine->step();
      end_tasks(current->engine->take_ended());
    } catch (const std::exception& error) {
      fail(current, error);
    }
  }
}

void FlowEngines::drop_idle() {
  const auto limit = GenerationClock::now() - options_.idle;
  for (auto slot = slots_.begin(); slot != slots_.end();) {
    const auto current = slot++;
    if (current->engine->busy() || current->engine->last_used() >= limit) continue;
    const bool is_kept = current->engine->flow().empty() && current->engine->keeps_texts();
    if (!is_kept) drop(current);
  }
}

void FlowEngines::publish(bool now) {
  constexpr std::chrono::milliseconds kBetween(100);
  const auto time = GenerationClock::now();
  if (!now && time - published_ < kBetween) return;
  published_ = time;
  EngineGauges gauges;
  gauges.waiting = static_cast<int>(waiting_.size());
  gauges.preemptions = preemptions_;
  std::set<const void*> pools;  // that engines share
  for (auto slot = slots_.begin(); slot != slots_.end();) {
    const auto current = slot++;
    try {
      const EngineStats stats = current->engine->stats();
      gauges.running += stats.running;
      gauges.waiting += stats.waiting;
      if (pools.insert(stats.pool).second) {
        gauges.pages += stats.pages_total;
        gauges.pages_used += stats.pages_total - stats.pages_free;
      }
      gauges.preemptions += stats.preemptions;
    } catch (const std::exception& error) {
      fail(current, error);
    }
  }
  if (const auto dense = find_slot(""); dense != slots_.end()) gauges.frozen_pages = dense->engine->stats().frozen_pages;
  metrics_.set_gauges(gauges);
}

std::vector<FrozenText> FlowEngines::frozen_texts() {
  const auto dense = find_slot("");
  return dense == slots_.end() ? std::vector<FrozenText>{} : dense->engine->frozen_texts();
}

bool FlowEngines::thaw(uint64_t id) {
  const auto dense = find_slot("");
  return dense != slots_.end() && dense->engine->thaw(id);
}

void FlowEngines::end_tasks(int count) {
  if (count > 0) ended_(count);
}

void FlowEngines::fail_all(int status, const std::string& message) {
  for (const Slot& slot : slots_) end_tasks(slot.engine->take_ended() + slot.engine->fail_all(status, message));
  for (const LiveTask& live : waiting_) live.fail(status, message);
  end_tasks(static_cast<int>(waiting_.size()));
  waiting_.clear();
}

}  // namespace sluice
