#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agents/generation/engine_maker.h"
#include "agents/generation/engine_options.h"
#include "agents/generation/engine_places.h"
#include "agents/generation/flow_engine.h"
#include "agents/generation/metrics.h"
#include "agents/generation/task_mail.h"
#include "agents/generation/task_places.h"

namespace sluice {

/// One engine for each flow in use, and the line of tasks that no engine has yet. Of one thread.
///
/// Tasks are given to engines in order of arrival. One whose flow has no engine gets a place for it by the rules of
/// `offer_place`, if need be that of an idle engine; while there is none it waits, and nobody behind it whose flow has an engine
/// waits with it, unless that is the one whose place it is to get. Whenever a caller gets a place, his tasks of other flows go to
/// the end of the line: of several callers who wait each gets one in turn. Dense attention has a place that no other takes.
///
/// Engines share the device by time: the next pass is one of the engine that had the least. Those that run themselves have
/// devices of their own.
class FlowEngines {
 public:
  /// What it refers to must outlive it. `ended` is told how many tasks have ended.
  FlowEngines(const GenerationOptions& options, const PlaceLimits& limits, EngineMaker& maker, GenerationMetrics& metrics,
              std::function<void(int count)> ended);

  /// Puts it at the end of the line.
  void add(LiveTask live);
  void cancel(const TaskMail::Cancellation& cancellation);
  /// Gives tasks to engines, and one engine a pass.
  void take_turn();
  /// Texts that dense attention's engine keeps known; none while there is no such engine.
  std::vector<FrozenText> frozen_texts();
  /// False: it has none of this number.
  bool thaw(uint64_t id);
  /// Ends every task with an error.
  void fail_all(int status, const std::string& message);

  /// Whether engines have tasks that run without `take_turn`.
  bool others_run() const { return is_busy(true); }
  /// Whether `take_turn` would find nothing to do, given whether others run. A slot that has just become idle, or failed, is one
  /// that the next task may have been waiting for.
  bool has_nothing_to_do(bool others_run) const { return !is_busy(false) && (waiting_.empty() || others_run); }
  /// Tells the gauges, which costs a wait for the device, now and then.
  void publish(bool now);

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

  bool is_busy(bool by_itself) const;

  // Who gets an engine (flow_engines_line.cpp).

  void admit();
  /// Gives tasks to engines, until one of the places that flows share has a new one: then true, and the line has another order.
  /// `closed`: the flows whose engines were closed before.
  bool admit_until_placed(std::set<std::string> closed);
  /// Whether a new engine for `live` has a place now; else some engine is closed, which `closed` then has, too.
  bool make_place(const LiveTask& live, std::set<std::string>& closed);
  void submit_to(Slot& slot, LiveTask& live);
  /// Whether a caller has as many tasks in an engine as one request may be, or as keep a batch full. His others wait in the line,
  /// behind everybody else's, or whoever needs the engine's place would wait for all of them.
  bool has_enough(const Slot& slot, const std::string& caller) const;
  Slots::iterator find_slot(const std::string& flow);
  /// Whether the engine of `flow` has one of the places that flows share.
  bool shares_places(const std::string& flow) const { return !flow.empty() || limits_.engines == 1; }
  std::vector<EnginePlace> shared_places(const std::set<std::string>& closed) const;
  /// A new engine. Throws as `EngineMaker::make` does.
  Slot& make_slot(const LiveTask& live);

  // What engines do (flow_engines.cpp).

  void drop(Slots::iterator slot);
  /// An engine that threw is of no use: its requests fail, and the next one gets a new engine.
  void fail(Slots::iterator slot, const std::exception& error);
  /// One pass of the engine that had the least time, of those that have one to run.
  void step_next();
  /// Of those that are not among `tried`.
  Slots::iterator next_to_step(const std::set<const FlowEngine*>& tried);
  /// Counts tasks that have ended; engines that have failed end theirs.
  void take_ended();
  void drop_idle();
  void end_tasks(int count);

  const GenerationOptions& options_;
  const PlaceLimits& limits_;
  EngineMaker& maker_;
  GenerationMetrics& metrics_;
  const std::function<void(int)> ended_;
  Slots slots_;
  double level_ = 0;  // seconds of the engine that was served last: one that has something to do again begins there
  std::deque<LiveTask> waiting_;
  uint64_t preemptions_ = 0;  // of engines that were dropped
  GenerationClock::time_point published_;
};

}  // namespace sluice
