#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "agents/orchestrator/executor.h"

namespace sluice::testing {

/// Executors that are no processes: a function judges, and all jobs are written down. Must outlive its executors.
class FakeJudge {
 public:
  using Judging = std::function<WorkerMessage(const WorkerJob& job)>;

  explicit FakeJudge(Judging judging) : judging_(std::move(judging)) {}

  ExecutorFactory factory();
  /// What was judged, in order.
  std::vector<WorkerJob> jobs() const;

 private:
  class Worker;

  Judging judging_;
  mutable std::mutex mutex_;
  std::vector<WorkerJob> jobs_;
};

/// A verdict on a flow that answers each of `samples` questions, times the job's factor, with the chance `truth`. Which ones
/// those are follows from the job's seed and script alone. The score is the share that it answers, with Wilson's interval.
WorkerReport answered(const WorkerJob& job, double truth, int samples, double speed = 2);

}  // namespace sluice::testing
