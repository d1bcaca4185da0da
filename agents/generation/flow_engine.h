#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "agents/generation/generation_queue.h"
#include "host/serving/engine.h"

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
  int marked_tokens = 0;  // of these, the ones in segments
  int tokens = 0;
  int likely = 0;               // tokens whose log-probabilities are told in each place
  std::shared_ptr<void> place;  // in the line, as long as it lives
  std::shared_ptr<void> use;    // of an engine, as long as it lives
  bool dear = false;            // a pass of its flow may take seconds
  bool stopped = false;         // cancelled because its text is complete, not because nobody wants it

  void fail(int status, const std::string& message) const;
  /// `error`: why there is no engine for it.
  void fail(const std::exception& error) const;
};

/// The engine of one flow and the tasks that it runs, as the engine's thread sees it.
class FlowEngine {
 public:
  FlowEngine() = default;
  virtual ~FlowEngine() = default;
  FlowEngine(const FlowEngine&) = delete;
  FlowEngine& operator=(const FlowEngine&) = delete;

  virtual const std::string& flow() const = 0;
  virtual bool busy() const = 0;
  virtual GenerationClock::time_point last_used() const = 0;
  virtual EngineStats stats() const = 0;
  /// Engine::frozen_texts, keeps_texts and thaw: none where passes run without `step`.
  virtual std::vector<FrozenText> frozen_texts() { return {}; }
  virtual bool keeps_texts() const { return false; }
  virtual bool thaw(uint64_t /*id*/) { return false; }
  /// Whether passes run without `step`.
  virtual bool runs_itself() const = 0;

  /// Takes a task, or tells it why not. One that throws is left to the caller, who has to tell it.
  virtual void submit(LiveTask& live) = 0;
  /// False if the task is not here.
  virtual bool cancel(uint64_t id, bool stopped) = 0;
  /// One pass of the engine, unless it runs itself. False if there was none: its tasks wait for pages of an engine that shares
  /// its cache, or have just been cancelled. Throws what the engine threw; then it can only be failed and destroyed.
  virtual bool step() = 0;
  /// Ends every task with an error; returns how many there were. The engine takes no more.
  virtual int fail_all(int status, const std::string& message) = 0;
  /// Tasks that ended since the last call.
  virtual int take_ended() = 0;
};

}  // namespace sluice
