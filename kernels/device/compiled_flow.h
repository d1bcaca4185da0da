#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "scripting/graph/plan.h"

namespace sluice {

/// What one request keeps between decode steps: the flow's `load`/`save` state, and what may spare a device work in the next
/// step. Made at admission, never in a step.
class RequestState {
 public:
  virtual ~RequestState() = default;
  virtual size_t bytes() const = 0;
  /// Back to the initial values.
  virtual void reset() = 0;
  /// What a program of the flow keeps (Plan::program). Throws InternalError where there is no such part.
  RequestState& of_program(int program);
  /// The same; null where there is no such part.
  virtual RequestState* find_program(int program) { return program == 0 ? this : nullptr; }
  /// Of which there may be parts: 0 up to this.
  virtual int programs() const { return 1; }
};

/// What the programs of a flow keep that has several: by program, null where one keeps nothing.
std::unique_ptr<RequestState> join_states(std::vector<std::unique_ptr<RequestState>> parts);

/// Pages of one KV head in one layer, summed over decode rows since a flow was compiled.
struct FlowCounters {
  uint64_t pages_attended = 0;
  uint64_t pages_available = 0;  // what dense attention would have read
};

/// A plan made ready for a device, for a model's layers and KV heads.
class CompiledFlow {
 public:
  virtual ~CompiledFlow() = default;
  virtual const Plan& plan() const = 0;
  /// State for one request of at most `max_pages` pages; null if nothing is kept.
  virtual std::unique_ptr<RequestState> create_state(int max_pages) const = 0;
  /// Waits for what the device has been told to do.
  virtual FlowCounters counters() const = 0;
};

}  // namespace sluice
