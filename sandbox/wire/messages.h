#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "scripting/lua/trace.h"

namespace sluice {

// What goes between this process and a child: to the child one request, back a greeting and one answer.

/// What the child is to trace. `TraceOptions::on_stop` does not travel.
struct TraceRequest {
  TraceOptions options;
  std::string source;
};

/// Patterns for which the child is to do what `solve` does (scripting/pattern/solution.h). It answers with a text for each, in
/// their order and as soon as it has it: an encoded solution (pattern_wire.h).
struct SolveRequest {
  static constexpr size_t kMostPatterns = 1024;

  std::vector<Pattern> patterns;
  uint64_t operations = 0;  // for each
};

using ChildRequest = std::variant<TraceRequest, SolveRequest>;

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

std::string encode(const ChildRequest& request);
std::string encode(const Greeting& greeting);
/// Messages and hints are cut to 16 KiB, the most that is read.
std::string encode(const TraceAnswer& answer);

// Each throws InputError that names the part at fault.

ChildRequest decode_request(std::string_view bytes);
/// Takes the greeting off the front of `bytes`.
Greeting take_greeting(std::string_view& bytes);
/// The graph is well-formed, not verified. `file` is the file of its locations.
TraceAnswer decode_answer(std::string_view bytes, const std::string& file);

}  // namespace sluice
