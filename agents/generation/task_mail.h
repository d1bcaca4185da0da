#pragma once

#include <cstdint>
#include <vector>

#include "agents/generation/flow_engine.h"

namespace sluice {

/// What other threads have sent to one that runs engines. Guarded by its owner.
struct TaskMail {
  struct Cancellation {
    uint64_t id;
    bool stopped;
  };

  std::vector<LiveTask> tasks;
  std::vector<Cancellation> cancellations;
  bool stop = false;
  bool changed = false;  // an engine in a thread of its own

  bool empty() const { return !stop && !changed && tasks.empty() && cancellations.empty(); }
};

}  // namespace sluice
