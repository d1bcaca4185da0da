#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agents/evaluation/recompute_rules.h"
#include "agents/generation/engine_options.h"
#include "agents/generation/engine_places.h"
#include "agents/generation/flow_engine.h"
#include "agents/generation/generation_queue.h"
#include "agents/generation/metrics.h"
#include "agents/generation/plan_cache.h"
#include "agents/generation/task_mail.h"
#include "agents/generation/task_places.h"
#include "host/transformer/model.h"

namespace sluice {

class FlowEngines;

/// The thread that owns the device, the model and one engine for each flow in use (flow_engines.h). Others hand it tasks and get
/// events back.
class EngineThread {
 public:
  /// Starts the thread and waits until the model is loaded. Throws InputError.
  EngineThread(GenerationOptions options, GenerationMetrics& metrics);
  /// Stops.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  const ModelConfig& config() const { return config_; }
  /// Throws HttpProblem (503) if so many tasks of `caller` would be too many just now, or the thread stops. Where others fill the
  /// line a caller who has few in it still has room for some.
  void check_room(int tasks, const std::string& caller) const;
  /// Makes the plans of their flows, queues tasks of one caller, all or none, and returns their ids. Throws as `check_room` and
  /// `GenerationOptions::read_flow` do.
  std::vector<uint64_t> submit(std::vector<GenerationTask> tasks);
  /// Ends a task, if it has not ended; `stopped`: because all that was wanted is there.
  void cancel(uint64_t id, bool stopped);
  /// FlowEngines::frozen_texts, and FlowEngines::thaw, between two passes. Throw HttpProblem (503) if the thread stops.
  std::vector<FrozenText> frozen_texts();
  bool thaw(uint64_t id);
  /// Ends every task with an error, and the thread.
  void stop();
  /// Whether tasks are taken.
  bool ready() const;

 private:
  void require_room(int tasks, const std::string& caller) const;  // with the lock held
  static void require_copies(const GenerationTask& task);
  /// Has the thread do something, and waits for it.
  void order(std::function<void(FlowEngines&)> work);

  // In the thread.
  void loop(Device& device, const Model& model);
  /// What has come, once there is something, or something to do.
  TaskMail take_mail(FlowEngines& engines);

  const GenerationOptions options_;
  const PlaceLimits limits_;
  GenerationMetrics& metrics_;
  ModelConfig config_;
  RecomputeRules rules_;
  PlanCache plans_;
  TaskPlaces places_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  TaskMail mail_;
  bool taking_ = false;
  int unfinished_ = 0;
  uint64_t last_id_ = 0;
  std::thread thread_;
};

}  // namespace sluice
