#include "scripting/graph/selections.h"

#include <algorithm>
#include <span>

#include "scripting/graph/ops.h"

namespace sluice {

namespace {

/// Those of `roots` and what they unite, operands before readers.
std::vector<NodeId> united_by(const FlowGraph& graph, std::span<const NodeId> roots) {
  std::vector<bool> is_used(graph.nodes.size(), false);
  for (const NodeId root : roots) {
    if (root != kNoNode) is_used[static_cast<size_t>(root)] = true;
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

}  // namespace

std::vector<NodeId> selections_of(const FlowGraph& graph) {
  std::vector<NodeId> roots;
  for (const AttentionSource& source : graph.sources) {
    roots.push_back(source.selection);
    roots.push_back(source.opened);
  }
  return united_by(graph, roots);
}

std::vector<NodeId> leaf_selections(const FlowGraph& graph) { return leaf_selections(graph, graph.selection()); }

std::vector<NodeId> leaf_selections(const FlowGraph& graph, NodeId selection) {
  std::vector<NodeId> leaves = united_by(graph, {&selection, 1});
  std::erase_if(leaves, [&](NodeId id) { return graph.nodes[static_cast<size_t>(id)].op == Op::kUnion; });
  return leaves;
}

bool is_of_tokens(const FlowGraph& graph, NodeId selection) {
  const std::vector<NodeId> united = united_by(graph, {&selection, 1});
  return std::any_of(united.begin(), united.end(),
                     [&](NodeId id) { return graph.nodes[static_cast<size_t>(id)].op == Op::kTopKTokens; });
}

int scores_a_page(const FlowGraph& graph) { return graph.selects_tokens() ? graph.geometry.page : 1; }

std::vector<NodeId> scored_selections(const FlowGraph& graph) {
  std::vector<NodeId> scored = selections_of(graph);
  std::erase_if(scored, [&](NodeId id) { return !is_scored(graph.nodes[static_cast<size_t>(id)].op); });
  return scored;
}

}  // namespace sluice
