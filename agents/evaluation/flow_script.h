#pragma once

#include <string>

#include "sandbox/sandboxed_trace.h"

namespace sluice {

/// A flow as it is written. Read once: it may come from a pipe.
struct FlowScript {
  std::string file;  // as messages call it
  std::string source;
  ParameterValues parameters = {};  // those that are set

  /// Traced in a sandbox, since flows are passed around like any file. Throws FlowError.
  FlowGraph trace(TraceOptions options) const {
    options.parameters = parameters;
    return trace_sandboxed(source, file, options);
  }
};

/// A flow as commands are given it, "quest" or "quest[pages=32,score=max]", in parts.
struct FlowReference {
  std::string flow;
  ParameterValues parameters;
};

/// Throws InputError where the brackets set nothing.
FlowReference parse_flow_reference(const std::string& text);

/// The script of `flow`: a file, a pipe (<(command), /dev/stdin), "-" for standard input, or the name of a shipped flow, each
/// with what its parameters are set to. Throws InputError that lists the shipped names, or says why the file cannot be read.
FlowScript read_flow(const std::string& flow);
/// The same where the source alone counts: parameters cannot be set.
FlowScript read_flow_as_written(const std::string& flow);

}  // namespace sluice
