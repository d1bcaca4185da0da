#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sandbox/wire/messages.h"
#include "scripting/lua/trace.h"

namespace sluice {

/// What the child that traces may use. The script's own limits are those of `TraceOptions`; these hold whatever it does.
struct SandboxLimits {
  double seconds = 1.8;                  // of wall-clock time, from the moment that the sandbox is closed
  size_t memory = size_t{256} << 20;     // bytes of address space, the program's own counted
  size_t most_answer = size_t{8} << 20;  // bytes
  /// The program that becomes the child, with arguments that go before ours. Its `main` must begin with `is_sandbox_child`
  /// (sandbox/process/child.h): another one would do what it always does.
  std::vector<std::string> command = {"/proc/self/exe"};
};

/// As `trace` (scripting/lua/trace.h), in a fresh process that can do nothing but compute, for scripts that nobody vouches for.
/// What comes back is checked byte by byte, then verified here. Throws what `trace` throws, FlowError for a script whose process
/// had to be killed or answered nonsense, and InternalError if the sandbox cannot be entered. Any number of threads may call it
/// at once.
FlowGraph trace_sandboxed(std::string_view source, const std::string& file, const TraceOptions& options = {},
                          const SandboxLimits& limits = {});

/// Starts a child to see which defences hold on this machine. Throws InternalError if seccomp or another one that cannot be done
/// without is missing.
SandboxLayers sandbox_layers(const SandboxLimits& limits = {});

}  // namespace sluice
