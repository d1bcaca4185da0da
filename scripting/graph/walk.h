#pragma once

#include <vector>

#include "scripting/graph/graph.h"

namespace sluice {

/// By node: whether computing `wanted` takes it: the node itself, its operands, the nodes of the fields that are read, and so on.
/// Nothing is needed for kNoNode. Nodes share operands, so that paths may double from one to the next: each is looked at once,
/// and nothing calls itself.
std::vector<bool> needed_for(const FlowGraph& graph, NodeId wanted);

}  // namespace sluice
