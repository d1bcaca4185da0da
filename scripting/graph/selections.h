#pragma once

#include <vector>

#include "scripting/graph/graph.h"

namespace sluice {

/// Selections that the graph's result is made of, each once, operands before readers. Empty where every layer is dense. Takes
/// time in proportion to the graph, however often operands are shared.
std::vector<NodeId> selections_of(const FlowGraph& graph);

/// Those of them that are no union: the graph's result is the union of their pages.
std::vector<NodeId> leaf_selections(const FlowGraph& graph);

/// Those of them that rank pages by a score, in the order in which devices report scores (AttentionProbe).
std::vector<NodeId> scored_selections(const FlowGraph& graph);

}  // namespace sluice
