#include "scripting/graph/walk.h"

namespace sluice {

std::vector<bool> needed_for(const FlowGraph& graph, NodeId wanted) {
  std::vector<bool> needed(graph.nodes.size());
  if (wanted == kNoNode) return needed;
  needed[static_cast<size_t>(wanted)] = true;
  // Operands, and the nodes of fields, come before what reads them.
  for (NodeId id = wanted; id >= 0; --id) {
    if (!needed[static_cast<size_t>(id)]) continue;
    const Node& node = graph.nodes[static_cast<size_t>(id)];
    for (const NodeId input : node.inputs) needed[static_cast<size_t>(input)] = true;
    if (node.op == Op::kField) needed[static_cast<size_t>(graph.find_field(node.attributes.field)->node)] = true;
  }
  return needed;
}

}  // namespace sluice
