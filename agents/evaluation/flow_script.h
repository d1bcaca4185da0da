#pragma once

#include <string>

#include "sandbox/sandboxed_trace.h"

namespace sluice {

/// A flow as it is written. Read once: it may come from a pipe.
struct FlowScript {
  std::string file;  // as messages call it
  std::string source;

  /// Traced in a sandbox, since flows are passed around like any file. Throws FlowError.
  FlowGraph trace(const TraceOptions& options) const { return trace_sandboxed(source, file, options); }
};

/// The script of `flow`: a file, a pipe (<(command), /dev/stdin), "-" for standard input, or the name of a shipped flow. Throws
/// InputError that lists the shipped names, or says why the file cannot be read.
FlowScript read_flow(const std::string& flow);

}  // namespace sluice
