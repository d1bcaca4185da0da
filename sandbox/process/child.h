#pragma once

#include <string>
#include <vector>

#include "sandbox/process/confinement.h"

namespace sluice {

/// The arguments that make a program a child of this process, for `trace_sandboxed` or `solve_sandboxed`.
std::vector<std::string> child_arguments(const ChildLimits& limits);

/// True if the program was started as such a child. The first thing that `main` asks, before it reads any argument, opens any
/// file or starts any thread.
bool is_sandbox_child(int argc, const char* const* argv);

/// The child: closes itself in, greets, reads a request, does it, answers and ends the process.
[[noreturn]] void run_sandbox_child(int argc, const char* const* argv);

}  // namespace sluice
