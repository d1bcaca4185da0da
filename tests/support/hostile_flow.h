#pragma once

#include <cstdint>

#include "scripting/graph/graph.h"

namespace sluice::testing {

/// A valid flow that asks for all that `verify` lets it ask for: unions and sums that share operands, chains of thousands of
/// operators, wide axes, long kernels, many phases, states, fields, selections and budgets. The same seed gives the same flow.
/// `model`: draw it for a model of such heads; pages and types are drawn in any case.
FlowGraph hostile_flow(uint64_t seed, const Geometry* model = nullptr);

}  // namespace sluice::testing
