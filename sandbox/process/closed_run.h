#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sandbox/process/child_process.h"
#include "sandbox/wire/messages.h"

namespace sluice {

/// What the child of one request may use.
struct ClosedRunLimits {
  double seconds = 0;      // of wall-clock time, from the moment that it is closed in
  int cpu_seconds = 0;     // of processor time
  size_t memory = 0;       // bytes of address space, the program's own counted
  size_t most_answer = 0;  // bytes
  std::vector<std::string> command;
};

/// A child that was closed in, was given a request, and is gone.
struct ClosedRun {
  ChildOutcome outcome;
  Greeting greeting;
  size_t answer_at = 0;  // in the output

  std::string_view answer() const { return std::string_view(outcome.output).substr(answer_at); }
};

/// Throws ResourceError where the child does not start, and InternalError where it cannot be closed in.
ClosedRun run_closed(std::string_view request, const ClosedRunLimits& limits);

}  // namespace sluice
