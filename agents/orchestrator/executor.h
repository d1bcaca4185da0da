#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "agents/orchestrator/worker_messages.h"

namespace sluice {

/// Judges flows for a slot, one after the other, somewhere that neither its hangs nor its crashes take this process along. Says
/// WorkerReady first, then of each job how far it is (WorkerProgress) and what came of it (WorkerReport, WorkerFailure). Ends
/// with this object, whatever it is doing. Used by one thread.
class Executor {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  Executor() = default;
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  virtual bool is_running() const = 0;
  /// Returns false if it is gone, or has not taken the job until `deadline`.
  virtual bool send(const WorkerJob& job, Deadline deadline) = 0;

  enum class Outcome { kMessage, kEnded, kDeadline };
  /// The next message, or why there is none. One that says what is no message has ended: it is killed.
  virtual Outcome next(WorkerMessage& message, Deadline deadline) = 0;
  /// Ends it and everything it started. Returns how it ended, as people read it, as far as that is known; "" if it had been
  /// killed before.
  virtual std::string kill() = 0;
};

/// Starts the executor of slot `slot` (from 0 on). Called by all slots' threads. Throws InternalError if that cannot be done.
using ExecutorFactory = std::function<std::unique_ptr<Executor>(int slot)>;

}  // namespace sluice
