#pragma once

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agents/orchestrator/orchestrator_options.h"
#include "agents/orchestrator/slot.h"

namespace sluice {

/// Judges what is in the queue of a store: a thread and a worker (executor.h) for each slot, or a worker for each of two models.
/// The threads own deadlines, the seed and the verdict. A worker that crashes, talks nonsense or cannot measure everything is
/// killed and started anew, and the attempt counts as failed; one that is not done in time is killed, and the flow has timed out;
/// one that does not even start is nobody's fault, nor is a store that is full or busy, and the submission waits. A worker in
/// which a flow ended by an error judges no other. Leases make sure that no two processes judge the same submission, and that
/// what a killed server was judging is judged again.
class Orchestrator {
 public:
  /// `database` is a store's file with the current schema. Starts at once. With `last` each slot has a second worker, for another
  /// equipment: it judges what is for that while nothing waits for the first, so that the two never disturb each other's times.
  /// The number of slots and how often they look are those of `options`.
  Orchestrator(std::string database, OrchestratorOptions options, std::optional<OrchestratorOptions> last = {});
  /// Ends what is running; it stays in the queue.
  ~Orchestrator();
  Orchestrator(const Orchestrator&) = delete;
  Orchestrator& operator=(const Orchestrator&) = delete;

  /// There is something new: a submission, or one that was cancelled.
  void wake();

 private:
  void run_slot(int number);

  const std::string database_;
  const OrchestratorOptions options_;
  const std::optional<OrchestratorOptions> last_;
  SlotSignal signal_;
  std::vector<std::thread> threads_;
};

}  // namespace sluice
