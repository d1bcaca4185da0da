#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agents/generation/flow_engine.h"
#include "agents/generation/generation_queue.h"
#include "agents/generation/metrics.h"
#include "agents/generation/plan_cache.h"
#include "agents/generation/task_places.h"
#include "host/model.h"
#include "scripting/lua/trace.h"

namespace spdlog {
class logger;
}

namespace sluice {

struct GenerationOptions {
  std::string model;  // directory
  std::string device = "cpu";
  int threads = 0;                     // of the CPU; 0: all cores
  bool token_for_completions = false;  // whether to generate needs a token
  /// Whether a flow that is not on the list may be used. Throws HttpProblem if not; null: none may. Called in the threads of
  /// connections.
  std::function<void(const std::string& name)> check_flow;
  /// The graph of a flow that a request names. Throws InputError for one that is not offered. Called in the threads of
  /// connections.
  std::function<FlowGraph(const std::string& name, const TraceOptions& options)> read_flow;
  /// Why the server should get no requests at the moment, besides what the engines know; "" or null: nothing. Asked for
  /// /health/ready, in the threads of connections.
  std::function<std::string()> trouble;
  int batch = 0;                        // requests that run at once, of one flow; 0: 16, on CUDA 64
  int chunk = 0;                        // rows of a pass; 0: 512, on CUDA 2048
  size_t pool_bytes = 0;                // of one engine; 0: 256 MiB, on CUDA an equal part of the memory that is free
  bool shares_device = false;           // with a process that judges, to which memory is left where pools take what is free
  int most_engines = 4;                 // one for each flow in use, dense included
  int most_requests = 256;              // running and waiting
  std::chrono::seconds idle{300};       // after which an engine without requests is dropped
  std::shared_ptr<spdlog::logger> log;  // null: none
};

/// The memory of a device when an engine is to be made.
struct EngineRoom {
  size_t free_bytes = 0;
  size_t weight_bytes = 0;   // of the model, which is there already
  int engines_to_come = 1;   // this one included, if there will be as many as there may be
  bool keeps_state = false;  // its flow
};

/// What an engine gets.
EngineOptions options_of_engine(const GenerationOptions& options, const DeviceInfo& device, const EngineRoom& room);

/// The thread that owns the device, the model and one engine for each flow in use. Others hand it tasks and get events back.
///
/// Tasks are given to engines in order of arrival. If the next one needs an engine and there are as many as there may be, an
/// idle one is dropped for it; while none is idle it waits, and all that came after it wait with it, so that it will not starve.
/// Dense attention waits for no flow: its engine has a place that no other takes.
///
/// Engines share the device by time: the next pass is one of the engine that had the least. On a CPU the engine of a flow whose
/// passes may take seconds has a device of its own instead (`DearEngine`).
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
  /// Ends every task with an error, and the thread.
  void stop();
  /// Whether tasks are taken.
  bool ready() const;

 private:
  struct Cancellation {
    uint64_t id;
    bool stopped;
  };
  /// What other threads have sent.
  struct Mail {
    std::vector<LiveTask> tasks;
    std::vector<Cancellation> cancellations;
    bool stop = false;
    bool changed = false;  // an engine in a thread of its own
  };
  struct Slot {
    std::unique_ptr<FlowEngine> engine;
    double seconds = 0;  // of passes, counted from `level_` on
    bool waits = false;  // it had nothing to do when its turn was last looked for
  };
  using Slots = std::list<Slot>;

  void require_room(int tasks, const std::string& caller) const;  // with the lock held

  // In the thread.
  void loop(Device& device, const Model& model);
  Mail take_mail();
  void cancel_now(const Cancellation& cancellation);
  void admit(Device& device, const Model& model);
  /// The engine of `flow`; null if it has to wait for one. Throws InputError if the flow is at fault.
  FlowEngine* slot_for(const GenerationTask& task, Device& device, const Model& model);
  /// A new engine. Throws FlowError if the device cannot run the flow, HttpProblem if the server lacks what it
  /// takes.
  FlowEngine& make_slot(const std::string& flow, std::shared_ptr<const Plan> plan, Device& device, const Model& model);
  std::unique_ptr<FlowEngine> make_engine(const std::string& flow, std::shared_ptr<const Plan> plan, const EngineOptions& options,
                                          Device& device, const Model& model);
  /// Whether passes of `plan` may take so long that they are to hold up nobody.
  bool is_dear(const Plan& plan, const EngineOptions& options, const DeviceInfo& device) const;
  /// The engine without requests that was used least recently, or the end.
  Slots::iterator oldest_idle();
  void drop(Slots::iterator slot);
  /// An engine that threw is of no use: its requests fail, and the next one gets a new engine.
  void fail(Slots::iterator slot, const std::exception& error);
  /// One pass of the engine that had the least time.
  void step_next();
  Slots::iterator next_to_step();
  /// Counts tasks that have ended; engines that have failed end theirs.
  void take_ended();
  void drop_idle();
  void publish(bool now);
  void end_tasks(int count);
  void fail_everything(int status, const std::string& message);

  const GenerationOptions options_;
  GenerationMetrics& metrics_;
  ModelConfig config_;
  PlanCache plans_;
  TaskPlaces places_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Mail mail_;
  bool taking_ = false;
  int unfinished_ = 0;
  uint64_t last_id_ = 0;

  // Of the thread alone.
  Slots slots_;
  double level_ = 0;  // seconds of the engine that was served last: one that has something to do again begins there
  std::deque<LiveTask> waiting_;
  uint64_t preemptions_ = 0;  // of engines that were dropped
  GenerationClock::time_point published_;
  std::thread thread_;
};

}  // namespace sluice
