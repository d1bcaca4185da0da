#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agents/evaluation/flow_script.h"
#include "agents/orchestrator/worker_process.h"
#include "agents/tasks/rng.h"
#include "store/records.h"

namespace sluice {

/// What a script was found to be before any worker saw it.
struct CheckedFlow {
  std::string fingerprint = {};  // bytes that only the same flow has; empty: nothing is known of it
  std::vector<store::Artifact> artifacts = {};
};

struct OrchestratorOptions {
  ExecutorFactory start_worker = worker_processes({});  // which judge
  int workers = 1;
  store::Equipment equipment = {};  // that workers have: what is for others waits
  std::string suite = "quick";      // for submissions whose settings name none
  double seconds = 900;             // of wall-clock time for one evaluation; settings may ask for less
  double ready_seconds = 300;       // until a worker has its model
  double lease_seconds = 30;        // renewed while a worker is heard of
  double poll_seconds = 1;          // between looks at the queue, for what other processes put there
  /// What every submission is judged by. Secret, and the same for all, so that dense attention answers its questions once.
  /// A trial with a seed is judged by one that is derived from both, so that who chose it does not know the questions either; a
  /// confirmation by one of its own.
  Seed seed;
  std::optional<store::FinalRun> finals = {};  // of what passed, which are asked for whenever a job has ended
  bool confirms = false;                       // by itself, what enters the front of score and speed
  bool holds_out = false;  // confirmations ask questions of other kinds and lengths, too, which follow from `seed` (holdout.h)
  /// Refuses scripts that no worker needs to see: throws FlowError or InputError. The artifacts of the others are kept with the
  /// verdict, whatever that is; a flow that was judged before is not judged again. Called by all threads.
  std::function<CheckedFlow(const FlowScript&)> check;
};

}  // namespace sluice
