#include "agents/generation/flow_cost.h"

#include <algorithm>
#include <cstdint>

#include "scripting/graph/ops.h"

namespace sluice {
namespace {

double operations_of(const FlowGraph& graph, const Node& node) {
  constexpr double kSelection = 8;  // a page is looked at, compared and moved several times
  if (is_selection(node.op)) return kSelection;
  int64_t operations = elements_per_page(node.shape);
  for (const NodeId input : node.inputs) {
    operations = std::max(operations, elements_per_page(graph.nodes.at(static_cast<size_t>(input)).shape));
  }
  if (node.op == Op::kContract) {
    const Shape& from = graph.nodes.at(static_cast<size_t>(node.inputs.front())).shape;
    const auto axis = static_cast<size_t>(find_axis(from, node.attributes.axis));
    operations = std::max(operations, elements_per_page(node.shape) * from.at(axis).extent);
  }
  if (node.op == Op::kConv1d) operations *= static_cast<int64_t>(node.attributes.kernel.size());
  return static_cast<double>(operations);
}

}  // namespace

double operations_a_page(const FlowGraph& graph) {
  double operations = 0;
  for (const Node& node : graph.nodes) operations += operations_of(graph, node);
  return operations;
}

}  // namespace sluice
