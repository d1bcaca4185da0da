#include "agents/generation/engine_slot.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agents/http/http_problem.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

double seconds(GenerationClock::duration time) { return std::chrono::duration<double>(time).count(); }

const char* reason_name(FinishReason reason, bool stopped) {
  if (reason == FinishReason::kLength) return "length";
  return reason == FinishReason::kStop || stopped ? "stop" : "abort";
}

}  // namespace

void LiveTask::fail(int status, const std::string& message) const {
  GenerationEvent event;
  event.kind = GenerationEvent::Kind::kFailed;
  event.choice = task.choice;
  event.status = status;
  event.message = message;
  task.events->push(std::move(event));
}

void LiveTask::fail(const std::exception& error) const {
  if (const auto* input = dynamic_cast<const InputError*>(&error)) {
    return fail(400, input->hint().empty() ? input->what() : fmt::format("{} ({})", input->what(), input->hint()));
  }
  const auto* problem = dynamic_cast<const HttpProblem*>(&error);
  if (problem != nullptr) return fail(problem->status(), problem->what());
  fail(500, "the engine could not be made; the server's log tells more");
}

EngineSlot::EngineSlot(Device& device, const Model& model, std::string flow, std::shared_ptr<const Plan> plan,
                       const EngineOptions& options, GenerationMetrics& metrics)
    : flow_(std::move(flow)),
      plan_(std::move(plan)),
      metrics_(metrics),
      engine_(std::make_unique<Engine>(device, model, plan_.get(), options)) {
  engine_->on_token([this](uint64_t id, const GeneratedToken& next) {
    const auto found = live_.find(id);
    if (found != live_.end()) token(found->second, id, next);
  });
}

void EngineSlot::submit(LiveTask& live) {
  last_used_ = GenerationClock::now();
  Request request = std::move(live.task.request);
  live.likely = std::max(request.likely, 0);
  if (live.task.fill) {
    // The last token generated needs no place in the pool.
    const int64_t room = engine_->stats().most_tokens - live.prompt_tokens + 1;
    request.max_tokens = static_cast<int>(std::clamp<int64_t>(room, 1, request.max_tokens));
  }
  try {
    const uint64_t id = engine_->submit(std::move(request));
    GenerationEvent event;
    event.kind = GenerationEvent::Kind::kAccepted;
    event.choice = live.task.choice;
    live.task.events->push(std::move(event));
    live_.emplace(id, std::move(live));
  } catch (const InputError& error) {
    live.fail(error);
    ++ended_;
  }
}

bool EngineSlot::cancel(uint64_t id, bool stopped) {
  for (auto& [engine_id, live] : live_) {
    if (live.id != id) continue;
    live.stopped = stopped;
    engine_->cancel(engine_id);
    return true;
  }
  return false;
}

bool EngineSlot::has(uint64_t id) const {
  return std::any_of(live_.begin(), live_.end(), [&](const auto& entry) { return entry.second.id == id; });
}

bool EngineSlot::step() {
  const bool got_on = engine_->step();
  for (const RequestResult& result : engine_->take_finished()) finish(result);
  if (live_.empty()) engine_->settle();  // an idle engine has nothing that a pass still uses
  last_used_ = GenerationClock::now();
  return got_on;
}

int EngineSlot::fail_all(int status, const std::string& message) {
  const int count = static_cast<int>(live_.size());
  for (const auto& [id, live] : live_) live.fail(status, message);
  live_.clear();
  return count;
}

void EngineSlot::token(LiveTask& live, uint64_t id, const GeneratedToken& generated) {
  const auto now = GenerationClock::now();
  GenerationEvent event;
  event.choice = live.task.choice;
  event.token = generated.token;
  event.cached_tokens = live.tokens == 0 ? engine_->cached_tokens(id) : 0;
  if (generated.probabilities != nullptr) {
    const RowProbabilities& row = *generated.probabilities;
    event.log_probability = row.of_token;
    event.likely.assign(row.likely.begin(), row.likely.begin() + live.likely);
  }
  if (generated.prompt != nullptr) event.prompt_probabilities = std::make_shared<const TokenProbabilities>(*generated.prompt);
  if (live.tokens == 0) {
    live.first_token = now;
    metrics_.first_token(seconds(now - live.arrival), live.prompt_tokens);
  } else {
    metrics_.next_token(seconds(now - live.last_token));
  }
  live.last_token = now;
  ++live.tokens;
  live.task.events->push(std::move(event));
}

void EngineSlot::finish(const RequestResult& result) {
  const auto found = live_.find(result.id);
  if (found == live_.end()) return;
  const LiveTask live = std::move(found->second);
  live_.erase(found);
  ++ended_;
  if (live.tokens == 0) {
    metrics_.abandoned();
  } else {
    // The engine tells how long prefill and decoding took; what is left of the time since arrival was waiting.
    RequestTimes times;
    times.tokens = live.tokens;
    times.decode = seconds(live.last_token - live.first_token);
    const double since_arrival = seconds(live.last_token - live.arrival);
    times.queue = std::max(since_arrival - result.prefill_seconds - result.decode_seconds, 0.);
    times.prefill = std::max(since_arrival - times.queue - times.decode, 0.);
    metrics_.finished(reason_name(result.reason, live.stopped), times, live.prompt_tokens, result.cached_tokens);
    metrics_.reused(live.marked_tokens, result.copied_tokens, result.recomputed_tokens);
  }
  if (result.reason == FinishReason::kNotFinite) {
    return live.fail(
        500, "the model's logits are not finite for this request: its weights are damaged or overflow, or the flow makes NaN");
  }
  GenerationEvent event;
  event.kind = GenerationEvent::Kind::kFinished;
  event.choice = live.task.choice;
  event.reason = result.reason;
  event.frozen = result.frozen;
  live.task.events->push(std::move(event));
}

}  // namespace sluice
