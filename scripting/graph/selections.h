#pragma once

#include <vector>

#include "scripting/graph/graph.h"

namespace sluice {

/// Selections that the sources of attention have, each once, operands before readers. Empty where every layer is dense. Takes
/// time in proportion to the graph, however often operands are shared.
std::vector<NodeId> selections_of(const FlowGraph& graph);

/// Those of the first source that are no union: what it has is the union of their pages.
std::vector<NodeId> leaf_selections(const FlowGraph& graph);

/// Those of them that rank pages by a score, in the order in which devices report scores (AttentionProbe).
std::vector<NodeId> scored_selections(const FlowGraph& graph);

}  // namespace sluice
