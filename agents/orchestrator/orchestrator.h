#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agents/flow_script.h"
#include "agents/tasks/rng.h"
#include "store/records.h"

namespace sluice {

struct OrchestratorOptions {
  std::string program = "/proc/self/exe";                  // that workers are
  std::vector<std::string> worker_arguments = {"worker"};  // and how they are started
  int workers = 1;
  std::string suite = "quick";  // for submissions whose settings name none
  double seconds = 900;         // of wall-clock time for one evaluation; settings may ask for less
  double ready_seconds = 300;   // until a worker has its model
  double lease_seconds = 30;    // renewed while a worker is heard of
  double poll_seconds = 1;      // between looks at the queue, for what other processes put there
  /// What every submission is judged by. Secret, and the same for all, so that dense attention answers its questions once.
  Seed seed;
  /// Refuses scripts that no worker needs to see: throws FlowError or InputError. What it finds of the others is kept with the
  /// verdict, whatever that is. Called by all threads.
  std::function<std::vector<store::Artifact>(const FlowScript&)> check;
};

/// Judges what is in the queue of a store: a thread and a worker process for each slot. The threads own deadlines, the seed and
/// the verdict. A worker that crashes, talks nonsense or cannot measure everything is killed and started anew, and the attempt
/// counts as failed; one that is not done in time is killed, and the flow has timed out; one that does not even start is nobody's
/// fault, nor is a store that is full or busy, and the submission waits. A worker in which a flow ended by an error judges no
/// other. Leases make sure that no two processes judge the same submission, and that what a killed server was judging is judged
/// again.
class Orchestrator {
 public:
  /// `database` is a store's file with the current schema. Starts at once.
  Orchestrator(std::string database, OrchestratorOptions options);
  /// Ends what is running; it stays in the queue.
  ~Orchestrator();
  Orchestrator(const Orchestrator&) = delete;
  Orchestrator& operator=(const Orchestrator&) = delete;

  /// There is something new: a submission, or one that was cancelled.
  void wake();

 private:
  class Slot;
  /// What slots wait for.
  struct Signal {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t number = 0;
    bool stopping = false;
  };

  const std::string database_;
  const OrchestratorOptions options_;
  Signal signal_;
  std::vector<std::thread> threads_;
};

}  // namespace sluice
