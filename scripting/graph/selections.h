#pragma once

#include <vector>

#include "scripting/graph/graph.h"

namespace sluice {

/// Selections that the sources of attention have, each once, operands before readers. Empty where every layer is dense. Takes
/// time in proportion to the graph, however often operands are shared.
std::vector<NodeId> selections_of(const FlowGraph& graph);

/// Those of the first source that are no union: what it has is the union of their pages.
std::vector<NodeId> leaf_selections(const FlowGraph& graph);
/// The same of any selection, or of none.
std::vector<NodeId> leaf_selections(const FlowGraph& graph, NodeId selection);

/// Whether a selection is one of tokens, by itself or by what it unites.
bool is_of_tokens(const FlowGraph& graph, NodeId selection);

/// Scores of a page, of the selection that has the most.
int scores_a_page(const FlowGraph& graph);

/// Those of them that rank pages, or tokens, by a score, in the order in which devices report scores (AttentionProbe).
std::vector<NodeId> scored_selections(const FlowGraph& graph);

}  // namespace sluice
