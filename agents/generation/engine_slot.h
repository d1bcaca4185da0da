#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "agents/generation/generation_queue.h"
#include "agents/generation/metrics.h"
#include "host/engine.h"
#include "scripting/graph/plan.h"

namespace sluice {

using GenerationClock = std::chrono::steady_clock;

/// A task in the engine's thread.
struct LiveTask {
  uint64_t id = 0;
  GenerationTask task;
  GenerationClock::time_point arrival;
  GenerationClock::time_point first_token;
  GenerationClock::time_point last_token;
  int prompt_tokens = 0;
  int tokens = 0;
  bool stopped = false;  // cancelled because its text is complete, not because nobody wants it

  void fail(int status, const std::string& message) const;
};

/// The engine of one flow, and the tasks that it runs. Belongs to the engine's thread.
class EngineSlot {
 public:
  EngineSlot(Device& device, const Model& model, std::string flow, std::optional<Plan> plan, const EngineOptions& options,
             GenerationMetrics& metrics);

  const std::string& flow() const { return flow_; }
  bool busy() const { return !live_.empty(); }
  GenerationClock::time_point last_used() const { return last_used_; }
  EngineStats stats() const { return engine_->stats(); }

  /// Takes a task, or tells it why not. One that throws is left to the caller, who has to tell it.
  void submit(LiveTask& live);
  /// False if the task is not here.
  bool cancel(uint64_t id, bool stopped);
  /// One pass of the engine. After an exception the slot can only be failed and destroyed.
  void step();
  /// Ends every task with an error; returns how many there were.
  int fail_all(int status, const std::string& message);
  /// Tasks that ended since the last call.
  int take_ended() { return std::exchange(ended_, 0); }

 private:
  void token(LiveTask& live, uint64_t id, int32_t token);
  void finish(const RequestResult& result);

  const std::string flow_;
  const std::optional<Plan> plan_;  // the engine refers to it
  const int page_;
  GenerationMetrics& metrics_;
  std::unordered_map<uint64_t, LiveTask> live_;  // by the engine's id
  GenerationClock::time_point last_used_ = GenerationClock::now();
  int ended_ = 0;
  std::unique_ptr<Engine> engine_;
};

}  // namespace sluice
