#pragma once

#include "scripting/graph/graph.h"

namespace sluice::repl {

/// The part of `graph` that computes `node`, which becomes the last: its nodes in their order, with new ids, and the fields and
/// states that they read. It has no saves, and selects pages only if `node` does.
FlowGraph subgraph(const FlowGraph& graph, NodeId node);

}  // namespace sluice::repl
