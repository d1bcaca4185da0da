#include "scripting/passes/rewrite.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sluice::passes {

namespace {

/// Applies `map` (old id to new id, kNoNode for dropped) to everything that refers to nodes.
void renumber(FlowGraph& graph, const std::vector<NodeId>& map) {
  const auto moved = [&map](NodeId id) { return id == kNoNode ? kNoNode : map[static_cast<size_t>(id)]; };
  for (Node& node : graph.nodes) {
    for (NodeId& input : node.inputs) input = moved(input);
  }
  for (Field& field : graph.fields) field.node = moved(field.node);
  std::erase_if(graph.fields, [](const Field& field) { return field.node == kNoNode; });
  for (NodeId& save : graph.saves) save = moved(save);
  std::erase(graph.saves, kNoNode);
  std::sort(graph.saves.begin(), graph.saves.end());
  for (AttentionSource& source : graph.sources) {
    source.selection = moved(source.selection);
    source.bias = moved(source.bias);
    source.logits = moved(source.logits);
    source.opened = moved(source.opened);
  }
}

}  // namespace

void redirect(FlowGraph& graph, const std::vector<NodeId>& replacement) {
  const auto target = [&replacement](NodeId id) {
    while (id != kNoNode && replacement[static_cast<size_t>(id)] != id) id = replacement[static_cast<size_t>(id)];
    return id;
  };
  for (Node& node : graph.nodes) {
    for (NodeId& input : node.inputs) input = target(input);
  }
  for (Field& field : graph.fields) field.node = target(field.node);
  for (AttentionSource& source : graph.sources) {
    source.selection = target(source.selection);
    source.bias = target(source.bias);
    source.logits = target(source.logits);
    source.opened = target(source.opened);
  }
}

void compact(FlowGraph& graph, const std::vector<bool>& keep) {
  std::vector<NodeId> map(graph.nodes.size(), kNoNode);
  std::vector<Node> kept;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!keep[i]) continue;
    map[i] = static_cast<NodeId>(kept.size());
    kept.push_back(std::move(graph.nodes[i]));
  }
  graph.nodes = std::move(kept);
  renumber(graph, map);
}

void reorder(FlowGraph& graph, const std::vector<NodeId>& order) {
  std::vector<NodeId> map(graph.nodes.size(), kNoNode);
  std::vector<Node> moved;
  moved.reserve(order.size());
  for (const NodeId id : order) {
    map[static_cast<size_t>(id)] = static_cast<NodeId>(moved.size());
    moved.push_back(std::move(graph.nodes[static_cast<size_t>(id)]));
  }
  graph.nodes = std::move(moved);
  renumber(graph, map);
}

void sort_stages(FlowGraph& graph) {
  std::vector<NodeId> order(graph.nodes.size());
  std::iota(order.begin(), order.end(), 0);
  const auto stage_of = [&](NodeId id) { return graph.nodes[static_cast<size_t>(id)].stage; };
  std::stable_sort(order.begin(), order.end(), [&](NodeId a, NodeId b) { return stage_of(a) < stage_of(b); });
  reorder(graph, order);
}

std::vector<int> count_readers(const FlowGraph& graph) {
  std::vector<int> readers(graph.nodes.size(), 0);
  for (const Node& node : graph.nodes) {
    for (const NodeId input : node.inputs) ++readers[static_cast<size_t>(input)];
  }
  for (const Field& field : graph.fields) ++readers[static_cast<size_t>(field.node)];
  for (const AttentionSource& source : graph.sources) {
    for (const NodeId id : {source.selection, source.bias, source.logits, source.opened}) {
      if (id != kNoNode) ++readers[static_cast<size_t>(id)];
    }
  }
  return readers;
}

}  // namespace sluice::passes
