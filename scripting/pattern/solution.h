#pragma once

#include <memory>
#include <span>
#include <vector>

#include "scripting/pattern/pattern.h"
#include "scripting/pattern/quasi_affine.h"

namespace sluice {

/// What is known of a pattern for every length at once.
struct PatternSolution {
  bool is_empty = false;            // no query sees any key
  QuasiAffineFunction last_reader;  // of the key at x
  QuasiAffineFunction last_key;     // that the query at x sees
};

using Solutions = std::vector<std::shared_ptr<const PatternSolution>>;

/// As the library of integer sets finds it (isl). Null where that takes more of its operations than `operations`, or numbers
/// become too large. isl 0.25 may crash where it is stopped, so programs that must go on ask a process of its own.
std::shared_ptr<const PatternSolution> solve(const Pattern& pattern, unsigned long operations);
/// The same of each, with as many operations for each.
Solutions solve_all(std::span<const Pattern> patterns, unsigned long operations);

using PatternSolver = Solutions (*)(std::span<const Pattern> patterns, unsigned long operations);

/// Whom PatternAnalysis asks, in all threads from here on: `solve_all`, unless the program has another
/// (sandbox/sandboxed_solve.h).
void set_pattern_solver(PatternSolver solver);
PatternSolver pattern_solver();

}  // namespace sluice
