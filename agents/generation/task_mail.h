#pragma once

#include <cstdint>
#include <future>
#include <vector>

#include "agents/generation/flow_engine.h"

namespace sluice {

class FlowEngines;

/// What other threads have sent to one that runs engines. Guarded by its owner.
struct TaskMail {
  struct Cancellation {
    uint64_t id;
    bool stopped;
  };

  std::vector<LiveTask> tasks;
  std::vector<Cancellation> cancellations;
  std::vector<std::packaged_task<void(FlowEngines&)>> orders;  // of who waits for them
  bool stop = false;
  bool changed = false;  // an engine in a thread of its own

  bool empty() const { return !stop && !changed && tasks.empty() && cancellations.empty() && orders.empty(); }
};

}  // namespace sluice
