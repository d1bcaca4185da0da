#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

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

/// The thread that owns the device, the model and one engine for each flow in use. Others hand it tasks and get events back.
///
/// Tasks are given to engines in order of arrival. One whose flow has no engine gets a place for it by the rules of
/// `offer_place`, if need be that of an idle engine; while there is none it waits, and nobody behind it whose flow has an engine
/// waits with it, unless that is the one whose place it is to get. Whenever a caller gets a place, his tasks of other flows go to
/// the end of the line: of several callers who wait each gets one in turn. Dense attention has a place that no other takes.
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
  /// Whose tasks an engine does not take for now (`EnginePlace::closed`).
  struct Closing {
    bool everybodys = false;
    std::set<std::string> callers = {};

    bool is_any() const { return everybodys || !callers.empty(); }
    bool holds(const std::string& caller) const { return everybodys || callers.contains(caller); }
  };
  struct Slot {
    std::unique_ptr<FlowEngine> engine;
    double seconds = 0;     // of passes, counted from `level_` on
    bool waits = false;     // it had nothing to do when its turn was last looked for
    TaskPlaces users = {};  // of its tasks
    Closing closed = {};
  };
  using Slots = std::list<Slot>;

  void require_room(int tasks, const std::string& caller) const;  // with the lock held

  // In the thread.
  void loop(Device& device, const Model& model);
  TaskMail take_mail();
  void cancel_now(const TaskMail::Cancellation& cancellation);
  void admit(Device& device, const Model& model);
  /// Gives tasks to engines, until one of the places that flows share has a new one: then true, and the line has another order.
  /// `closed`: the flows whose engines were closed before.
  bool admit_until_placed(std::set<std::string> closed, Device& device, const Model& model);
  /// Whether a new engine for `live` has a place now; else some engine is closed, which `closed` then has, too.
  bool make_place(const LiveTask& live, std::set<std::string>& closed);
  void submit_to(Slot& slot, LiveTask& live);
  /// Whether a caller has as many tasks in an engine as one request may be, or as keep a batch full. His others wait in the line,
  /// behind everybody else's, or whoever needs the engine's place would wait for all of them.
  bool has_enough(const Slot& slot, const std::string& caller, const Device& device) const;
  Slots::iterator find_slot(const std::string& flow);
  /// Whether the engine of `flow` has one of the places that flows share.
  bool shares_places(const std::string& flow) const { return !flow.empty() || limits_.engines == 1; }
  std::vector<EnginePlace> shared_places(const std::set<std::string>& closed) const;
  /// A new engine. Throws FlowError if the device cannot run the flow, HttpProblem if the server lacks what it takes.
  Slot& make_slot(const LiveTask& live, Device& device, const Model& model);
  std::unique_ptr<FlowEngine> make_engine(const LiveTask& live, const EngineOptions& options, Device& device, const Model& model);
  /// Whether passes of `plan` may take so long that they are to hold up nobody.
  bool is_dear(const Plan& plan, const Device& device) const;
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
  const PlaceLimits limits_;
  GenerationMetrics& metrics_;
  ModelConfig config_;
  PlanCache plans_;
  TaskPlaces places_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  TaskMail mail_;
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
