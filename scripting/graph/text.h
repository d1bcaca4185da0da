#pragma once

#include <string>
#include <string_view>

#include "scripting/graph/graph.h"
#include "scripting/graph/plan.h"

namespace sluice {

/// "query", "pages", "row", "select", "save".
std::string_view name_of(StepKind kind);

/// Stable text of a graph: the same graph prints the same text on every machine; goldens of it are tests.
std::string to_text(const FlowGraph& graph);
/// The line of one node of that text: "%3 = max %2 over token   [page B, dim 64]".
std::string to_text(const FlowGraph& graph, NodeId node);
/// The graph text followed by the fused steps and their bytes.
std::string to_text(const Plan& plan);

}  // namespace sluice
