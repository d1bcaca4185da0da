#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/orchestrator/executor.h"
#include "agents/orchestrator/orchestrator_options.h"
#include "agents/orchestrator/slot_signal.h"
#include "store/store.h"

namespace sluice {

/// A thread's work with one worker: claims a job, has it judged, writes down what came of it.
class Slot {
 public:
  /// What it refers to must outlive it. `database` is a store's file. Slots of one number have a `part` each.
  Slot(int number, const std::string& database, const OrchestratorOptions& options, SlotSignal& signal,
       const std::string& part = {});

  /// Takes the next job; false if there was none, or nothing can be judged for now. What goes wrong with the store itself (a full
  /// disk, say) is tried again by the next call.
  bool work();

 private:
  using Clock = std::chrono::steady_clock;
  /// Why waiting for a worker has ended.
  enum class Ending { kAnswered, kLost, kDeadline, kStopping };
  struct Answer {
    Ending ending = Ending::kLost;
    WorkerMessage message;  // that is no progress
  };

  bool judge(store::Lease lease);
  /// What is wrong with the script alone is found before a worker sees it.
  bool refuse(const store::Submission& submission, const store::Lease& lease);
  /// Whether the flow was judged before, which ends the job, or is being judged, for which it waits in the queue.
  bool share(const store::Lease& lease);
  void evaluate(const store::Submission& submission, store::Lease& lease);
  /// What the worker reports of a job. Nothing if it comes to no report, which has ended the attempt; then, or when the report
  /// says so, the worker `is_sound` no more.
  std::optional<std::string> report_of(const WorkerJob& job, store::Lease& lease, double seconds, bool& is_sound);

  // How an attempt ends.

  void complete(const store::Lease& lease, store::Verdict verdict);
  /// Asks for the confirmation of what enters the front.
  void confirm(store::SubmissionId submission);
  /// Asks for the finals of what passed, as many as may wait.
  void ask_finals();
  void fail(const store::Lease& lease, const std::string& reason);
  void release(const store::Lease& lease);
  /// What is lacking is no fault of the submission: it goes back to the queue, and the slot rests ever longer, up to a bound,
  /// before it takes another.
  void put_back(const store::Lease& lease, const std::string& why);
  /// The worker has ended, or says what it should not.
  void lose_worker(const store::Lease& lease);
  /// Writes it. What the store cannot take for now is owed to it, and nothing else is judged before.
  void settle(std::function<void()> write);
  void pay();

  // Its worker.

  /// A worker that is ready. False if there is none: the submission was put back. One that is half way when the submission is
  /// cancelled goes on for the next.
  bool start_worker(store::Lease& lease);
  /// Keeps the lease meanwhile. `is_secret`: what is being asked is told to nobody. Throws StoreError (kConflict) once it is
  /// lost.
  Answer wait_for_answer(store::Lease& lease, Clock::time_point deadline, bool is_secret = false);
  /// Looks whether the lease is still held, and renews it when it is time.
  void keep(store::Lease& lease, Clock::time_point& renewal);
  void tell(const store::Lease& lease, const WorkerProgress& progress);
  /// Does what an evaluation need not end for if the store is in trouble: only a lost lease ends it.
  void while_held(const std::function<void()>& work);

  const int number_;
  const std::string process_;  // what the names of all slots of this process begin with
  const std::string name_;
  const std::string& database_;
  const OrchestratorOptions& options_;
  SlotSignal& signal_;
  std::optional<store::Store> store_;
  std::function<void()> owed_;  // to the store: how the last attempt ended
  std::unique_ptr<Executor> worker_;
  bool is_ready_ = false;   // the worker
  std::string stage_;       // what the worker is at
  double delay_;            // seconds, after the next lack
  Clock::time_point rest_;  // until then it takes nothing, after a lack
  CheckedFlow found_;       // of the script, before a worker saw it
};

/// The slots of a thread: each time the first that has anything takes a job. Until the signal stops them.
void run_slots(const std::vector<Slot*>& slots, const SlotSignal& signal, double poll_seconds);

}  // namespace sluice
