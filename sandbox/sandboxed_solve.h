#pragma once

#include "scripting/pattern/solution.h"

namespace sluice {

/// As `solve_all` (scripting/pattern/solution.h), in a fresh process that can do nothing but compute: the library that solves may
/// crash, and its operations take what time they like. Null is what it crashes on, and what it has not solved after a second of
/// processor time. What was solved of late is remembered. Throws InternalError if the sandbox cannot be entered or does not hold,
/// ResourceError if the machine is too busy. Any number of threads may call it at once.
Solutions solve_sandboxed(std::span<const Pattern> patterns, unsigned long operations);

}  // namespace sluice
