#pragma once

#include <cstddef>

#include "sandbox/wire/messages.h"

namespace sluice {

/// What a child may use, as the kernel enforces it on the child itself. The parent's clock comes on top (sandboxed_trace.h).
struct ChildLimits {
  size_t memory = 0;    // bytes of address space
  int cpu_seconds = 0;  // of processor time
};

/// Sets resource limits: memory and processor time; no file may grow, none be opened, no process be started, no core be dumped.
/// Throws InternalError.
void limit_resources(const ChildLimits& limits);

/// Closes this process in for good: resource limits, no_new_privs, Landlock and seccomp, in this order. For a process of one
/// thread that has not yet read anything that it does not trust. Throws InternalError if any layer but Landlock is missing.
SandboxLayers confine(const ChildLimits& limits);

}  // namespace sluice
