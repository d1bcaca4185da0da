#pragma once

#include <optional>
#include <string>

#include "scripting/graph/recompute.h"

namespace sluice {

/// Compares what a rule selects (make_recompute_rule) with what the float64 reference makes of the same graph, on random facts of
/// few and of many copied blocks, where float32 leaves no choice. What disagrees, or nothing. Deterministic.
std::optional<std::string> check_rule_against_reference(const Recompute& rule);

}  // namespace sluice
