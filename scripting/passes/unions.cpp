#include <algorithm>

#include "scripting/graph/selections.h"
#include "scripting/passes/passes.h"
#include "scripting/passes/rewrite.h"

namespace sluice::passes {

void flatten_unions(FlowGraph& graph) {
  if (graph.sources.size() != 1) return;  // what two selections share would have to be kept for both
  const std::vector<NodeId> united = leaf_selections(graph);
  const auto is_union = [](const Node& node) { return node.op == Op::kUnion; };
  const auto unions = std::count_if(graph.nodes.begin(), graph.nodes.end(), is_union);
  if (unions < std::max(std::ssize(united), std::ptrdiff_t{1})) return;  // no fewer can join so many
  const Node result = graph.nodes[static_cast<size_t>(graph.selection())];
  // Only unions read unions, so that all may go; as many as are needed, of which there were no fewer, come back at the end.
  std::vector<bool> keep(graph.nodes.size());
  std::vector<NodeId> moved(graph.nodes.size());
  NodeId kept = 0;
  for (size_t i = 0; i < keep.size(); ++i) {
    keep[i] = !is_union(graph.nodes[i]);
    moved[i] = kept;
    kept += keep[i] ? 1 : 0;
  }
  compact(graph, keep);
  NodeId all = moved[static_cast<size_t>(united.front())];
  for (size_t i = 1; i < united.size(); ++i) {
    Node node;
    node.op = Op::kUnion;
    node.inputs = {all, moved[static_cast<size_t>(united[i])]};
    node.where = result.where;
    node.traced = i + 1 == united.size() ? result.traced : kNoNode;  // those before it unite what no union of the script does
    all = static_cast<NodeId>(graph.nodes.size());
    graph.nodes.push_back(std::move(node));
  }
  graph.sources.front().selection = all;
  sort_stages(graph);
}

}  // namespace sluice::passes
