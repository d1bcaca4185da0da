#pragma once

#include <vector>

#include "scripting/graph/graph.h"

namespace sluice::passes {

/// Points every reader (nodes, fields, selection) of node i at `replacement[i]`, which is i itself or an earlier node of
/// the same stage and shape. The replaced nodes stay, unread.
void redirect(FlowGraph& graph, const std::vector<NodeId>& replacement);

/// Keeps the nodes with `keep[i]`, renumbering all references; readers of dropped nodes must be dropped too. Fields whose node
/// is dropped go as well.
void compact(FlowGraph& graph, const std::vector<bool>& keep);

/// Reorders nodes: `order` lists old ids, each once, operands before readers.
void reorder(FlowGraph& graph, const std::vector<NodeId>& order);

/// Puts nodes of earlier stages before those of later ones, otherwise as they are.
void sort_stages(FlowGraph& graph);

/// How many operands, fields and selections refer to each node.
std::vector<int> count_readers(const FlowGraph& graph);

}  // namespace sluice::passes
