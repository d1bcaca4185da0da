#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "agents/evaluation/recompute_rules.h"
#include "host/serving/engine.h"
#include "scripting/graph/plan.h"

namespace sluice {

/// What the engine's thread tells of one choice of a request.
struct GenerationEvent {
  enum class Kind : uint8_t { kAccepted, kToken, kFinished, kFailed };
  Kind kind = Kind::kToken;
  int choice = 0;
  int32_t token = 0;                                               // kToken
  FinishReason reason = FinishReason::kLength;                     // kFinished
  uint64_t frozen = 0;                                             // kFinished: RequestResult::frozen
  int cached_tokens = 0;                                           // kToken: of the prompt, with the first
  float log_probability = 0;                                       // kToken: if it was asked for (Request::likely)
  std::vector<LikelyToken> likely;                                 // kToken: in its place, likewise
  std::shared_ptr<const TokenProbabilities> prompt_probabilities;  // kToken: with the first, if asked for
  int status = 500;                                                // kFailed: of HTTP
  std::string message;                                             // kFailed
};

/// Events of one HTTP request, from the engine's thread to the one that answers. Holds at most the tokens that were asked for,
/// which the engine's limits bound.
class GenerationQueue {
 public:
  void push(GenerationEvent event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_one();
  }
  /// The next event, waiting for it at most `wait`.
  std::optional<GenerationEvent> pop(std::chrono::milliseconds wait) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, wait, [&] { return !events_.empty(); })) return std::nullopt;
    GenerationEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<GenerationEvent> events_;
};

/// One choice of a request: what is to be generated, and who wants to know.
struct GenerationTask {
  std::string caller;                // who asked (`caller_of`)
  std::string flow;                  // empty: dense
  std::shared_ptr<const Plan> plan;  // of the flow; null: dense
  RecomputeChoice recompute;         // the rule of its segments
  Request request;
  bool fill = false;  // as many tokens as the pool has room for, up to request.max_tokens
  int choice = 0;
  std::shared_ptr<GenerationQueue> events;
};

}  // namespace sluice
