#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "agents/orchestrator/executor.h"
#include "agents/orchestrator/line_pipe.h"

namespace sluice {

/// A worker in a process (and process group) of its own, which neither hang nor crash of takes this one along. It gets two pipes
/// and its error stream, no other descriptor, and of the environment what programs and GPUs need to be found. It ends with this
/// object, whatever it is doing, and with the thread that made it. Several threads may each have their own. The process must
/// ignore SIGPIPE.
class WorkerProcess final : public Executor {
 public:
  /// Starts `program` with `arguments`. `variables`, each NAME=VALUE, go before what this process has under the same names.
  /// Throws InternalError if that cannot be done.
  WorkerProcess(const std::string& program, const std::vector<std::string>& arguments,
                const std::vector<std::string>& variables = {});
  ~WorkerProcess() override;
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  bool is_running() const override;
  bool send(const WorkerJob& job, Deadline deadline) override;
  Outcome next(WorkerMessage& message, Deadline deadline) override;
  /// Returns "exit status 2", "signal 9 (Killed)".
  std::string kill() override;

 private:
  pid_t pid_ = -1;
  int in_ = -1;   // its standard input
  int out_ = -1;  // its standard output
  LineReader reader_;
};

/// How workers are started, each for a slot of its own.
struct WorkerCommand {
  std::string program = "/proc/self/exe";
  std::vector<std::string> arguments = {"worker"};
  /// What each gets as CUDA_VISIBLE_DEVICES, by its slot; empty: all get this process's.
  std::vector<std::string> gpus = {};
};

ExecutorFactory worker_processes(WorkerCommand command);

}  // namespace sluice
