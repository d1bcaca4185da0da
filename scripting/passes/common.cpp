#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

#include "scripting/graph/ops.h"
#include "scripting/passes/passes.h"
#include "scripting/passes/rewrite.h"

namespace sluice::passes {

namespace {

/// All that decides what a node computes. Numbers are compared by their bits: 0 and -0 differ.
using Key = std::tuple<Op, Stage, std::vector<NodeId>, std::vector<std::pair<Axis, int>>, uint64_t, std::vector<int>, std::string,
                       std::vector<float>, uint64_t, uint64_t>;

Key key_of(const Node& node) {
  const Attributes& a = node.attributes;
  std::vector<NodeId> inputs = node.inputs;
  // The shape is part of the key, so that swapped operands only merge where the order of axes is the same.
  if (is_commutative(node.op) || node.op == Op::kUnion) std::sort(inputs.begin(), inputs.end());
  std::vector<std::pair<Axis, int>> shape;
  for (const Dimension& dimension : node.shape) shape.emplace_back(dimension.axis, dimension.extent);
  const std::vector<int> integers = {static_cast<int>(a.axis),    a.group,    a.start, a.stop,
                                     static_cast<int>(a.compare), a.k,        a.first, a.last,
                                     static_cast<int>(a.method),  a.max_pages};
  return {node.op,
          node.stage,
          std::move(inputs),
          std::move(shape),
          std::bit_cast<uint64_t>(a.value),
          integers,
          a.field,
          a.kernel,
          std::bit_cast<uint64_t>(a.ratio),
          std::bit_cast<uint64_t>(a.tolerate)};
}

}  // namespace

void merge_common(FlowGraph& graph) {
  std::map<Key, NodeId> known;
  std::vector<NodeId> replacement(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    for (NodeId& input : node.inputs) input = replacement[static_cast<size_t>(input)];
    replacement[i] = static_cast<NodeId>(i);
    if (node.op == Op::kSave) continue;
    const auto [entry, is_new] = known.try_emplace(key_of(node), static_cast<NodeId>(i));
    if (!is_new) replacement[i] = entry->second;
  }
  redirect(graph, replacement);
}

}  // namespace sluice::passes
