#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "agents/orchestrator/line_pipe.h"
#include "agents/orchestrator/worker_messages.h"

namespace sluice {

/// A worker in a process (and process group) of its own, which neither hang nor crash of takes this one along. It gets two pipes
/// and its error stream, no other descriptor, and of the environment what programs and GPUs need to be found. It ends with this
/// object, whatever it is doing, and with the thread that made it. Several threads may each have their own. The process must
/// ignore SIGPIPE.
class WorkerProcess {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  /// Starts `program` with `arguments`. `variables`, each NAME=VALUE, go before what this process has under the same names.
  /// Throws InternalError if that cannot be done.
  WorkerProcess(const std::string& program, const std::vector<std::string>& arguments,
                const std::vector<std::string>& variables = {});
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  bool is_running() const;
  /// Returns false if the worker is gone, or has not taken it until `deadline`.
  bool send(const WorkerJob& job, Deadline deadline) const;

  enum class Outcome { kMessage, kEnded, kDeadline };
  /// The next message, or why there is none. A worker that says what is no message has ended: it is killed.
  Outcome next(WorkerMessage& message, Deadline deadline);
  /// Ends it and everything it started. Returns how it ended: "exit status 2", "signal 9 (Killed)".
  std::string kill();

 private:
  pid_t pid_ = -1;
  int in_ = -1;   // its standard input
  int out_ = -1;  // its standard output
  LineReader reader_;
};

}  // namespace sluice
