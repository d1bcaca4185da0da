#include "scripting/repl/subgraph.h"

#include <algorithm>

#include "scripting/graph/ops.h"
#include "scripting/graph/walk.h"

namespace sluice::repl {

namespace {

bool is_read(const FlowGraph& graph, Op op, const std::string& name) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [&](const Node& node) { return node.op == op && node.attributes.field == name; });
}

}  // namespace

FlowGraph subgraph(const FlowGraph& graph, NodeId node) {
  const std::vector<bool> needed = needed_for(graph, node);
  FlowGraph part;
  part.name = graph.name;
  part.where = graph.where;
  part.geometry = graph.geometry;
  part.layers = graph.layers;
  std::vector<NodeId> ids(graph.nodes.size(), kNoNode);
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    if (!needed[id]) continue;
    ids[id] = static_cast<NodeId>(part.nodes.size());
    Node copy = graph.nodes[id];
    for (NodeId& input : copy.inputs) input = ids[static_cast<size_t>(input)];
    part.nodes.push_back(std::move(copy));
  }
  for (const Field& field : graph.fields) {
    if (!is_read(part, Op::kField, field.name)) continue;
    part.fields.push_back(field);
    part.fields.back().node = ids[static_cast<size_t>(field.node)];
  }
  for (const State& state : graph.states) {
    if (is_read(part, Op::kLoad, state.name)) part.states.push_back(state);
  }
  if (is_selection(part.nodes.back().op)) part.attend_to(ids[static_cast<size_t>(node)]);
  if (graph.selection() == node && graph.beside() != nullptr) part.sources.front().beside = *graph.beside();
  return part;
}

}  // namespace sluice::repl
