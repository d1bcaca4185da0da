#include "scripting/graph/selections.h"

#include <algorithm>

#include "scripting/graph/ops.h"

namespace sluice {

std::vector<NodeId> selections_of(const FlowGraph& graph) {
  std::vector<bool> is_used(graph.nodes.size(), false);
  for (const AttentionSource& source : graph.sources) {
    if (source.selection != kNoNode) is_used[static_cast<size_t>(source.selection)] = true;
  }
  std::vector<NodeId> used;
  // Operands have smaller ids than their readers, so one walk from the end meets every reader of a node before the node.
  for (size_t id = graph.nodes.size(); id-- > 0;) {
    if (!is_used[id]) continue;
    used.push_back(static_cast<NodeId>(id));
    if (graph.nodes[id].op != Op::kUnion) continue;
    for (const NodeId input : graph.nodes[id].inputs) is_used[static_cast<size_t>(input)] = true;
  }
  std::reverse(used.begin(), used.end());
  return used;
}

std::vector<NodeId> leaf_selections(const FlowGraph& graph) {
  std::vector<NodeId> leaves = selections_of(graph);
  std::erase_if(leaves, [&](NodeId id) { return graph.nodes[static_cast<size_t>(id)].op == Op::kUnion; });
  return leaves;
}

std::vector<NodeId> scored_selections(const FlowGraph& graph) {
  std::vector<NodeId> scored = selections_of(graph);
  std::erase_if(scored, [&](NodeId id) { return !is_scored(graph.nodes[static_cast<size_t>(id)].op); });
  return scored;
}

}  // namespace sluice
