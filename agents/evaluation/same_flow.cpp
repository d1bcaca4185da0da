#include "agents/evaluation/same_flow.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "scripting/graph/selections.h"

namespace sluice {
namespace {

std::vector<std::pair<std::string, DataType>> fields_of(const FlowGraph& graph) {
  std::vector<std::pair<std::string, DataType>> fields;
  for (const Field& field : graph.fields) fields.emplace_back(field.name, field.type);
  return fields;
}

std::vector<std::string> states_of(const FlowGraph& graph) {
  std::vector<std::string> states;
  for (const State& state : graph.states) states.push_back(state.name);
  return states;
}

std::vector<std::pair<Op, Attributes>> selections_in(const FlowGraph& graph) {
  std::vector<std::pair<Op, Attributes>> selections;
  for (const NodeId id : selections_of(graph)) {
    const Node& node = graph.nodes[static_cast<size_t>(id)];
    selections.emplace_back(node.op, node.attributes);
  }
  return selections;
}

/// What each source attends to: the entries, whether with a bias, and which of the selections.
std::vector<std::tuple<std::string, std::string, bool, ptrdiff_t>> sources_of(const FlowGraph& graph) {
  const std::vector<NodeId> selections = selections_of(graph);
  std::vector<std::tuple<std::string, std::string, bool, ptrdiff_t>> sources;
  for (const AttentionSource& source : graph.sources) {
    const auto at = std::find(selections.begin(), selections.end(), source.selection) - selections.begin();
    sources.emplace_back(source.keys, source.values, source.bias != kNoNode, at);
  }
  return sources;
}

std::set<std::pair<Stage, Op>> operators_of(const FlowGraph& graph) {
  std::set<std::pair<Stage, Op>> operators;
  for (const Node& node : graph.nodes) operators.emplace(node.stage, node.op);
  return operators;
}

}  // namespace

std::optional<std::string> difference_between(const FlowGraph& first, const FlowGraph& second) {
  if (first.geometry.page != second.geometry.page) return "its pages have another size";
  if (first.geometry.kv != second.geometry.kv) return "its K and V are of another type";
  if (first.layers != second.layers) return "it names other layers";
  if (fields_of(first) != fields_of(second)) return "it caches other fields";
  if (states_of(first) != states_of(second)) return "it keeps other states";
  if (selections_in(first) != selections_in(second)) return "its selections are others";
  if (sources_of(first) != sources_of(second)) return "it attends to other entries";
  if (operators_of(first) != operators_of(second)) return "it computes with other operators";
  return std::nullopt;
}

}  // namespace sluice
