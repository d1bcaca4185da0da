#pragma once

#include <string>

#include "scripting/graph/graph.h"

namespace sluice::testing {

/// A Lua script that describes `graph`: traced for a model of the graph's head size and group, it gives the same operators.
/// Scalar constants become fills without axes, since a script has them only as operands.
std::string script_of(const FlowGraph& graph);

}  // namespace sluice::testing
