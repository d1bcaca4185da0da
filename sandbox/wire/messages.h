#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "scripting/lua/trace.h"

namespace sluice {

// What goes between `trace_sandboxed` and its child: to the child one request, back a greeting and one answer.

/// What the child is to trace. `TraceOptions::on_stop` does not travel.
struct TraceRequest {
  TraceOptions options;
  std::string source;
};

/// Which defences hold in the child.
struct SandboxLayers {
  bool seccomp = false;
  int landlock = 0;  // version of the kernel's interface; 0: the kernel has none, or it is switched off
};

/// What the child says when the sandbox is closed and before it reads a byte of the script, so a script cannot have forged it.
struct Greeting {
  SandboxLayers layers;
  std::string problem;  // why the sandbox could not be entered; empty if it was
};

/// A refusal without the name of the file, which the parent knows.
struct Diagnostic {
  enum class Kind : uint8_t { kFlow, kInput, kInternal };  // FlowError, InputError, InternalError
  Kind kind = Kind::kFlow;
  int line = 0;
  std::string message;
  std::string hint;
};

using TraceAnswer = std::variant<FlowGraph, Diagnostic>;

std::string encode(const TraceRequest& request);
std::string encode(const Greeting& greeting);
/// Messages and hints are cut to 16 KiB, the most that is read.
std::string encode(const TraceAnswer& answer);

// Each throws InputError that names the part at fault.

TraceRequest decode_request(std::string_view bytes);
/// Takes the greeting off the front of `bytes`.
Greeting take_greeting(std::string_view& bytes);
/// The graph is well-formed, not verified. `file` is the file of its locations.
TraceAnswer decode_answer(std::string_view bytes, const std::string& file);

}  // namespace sluice
