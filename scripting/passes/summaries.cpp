#include <algorithm>
#include <numeric>
#include <utility>

#include "scripting/graph/shapes.h"
#include "scripting/graph/verify.h"
#include "scripting/graph/verify_parts.h"
#include "scripting/passes/passes.h"
#include "scripting/passes/rewrite.h"

namespace sluice::passes {

namespace {

NodeId append(FlowGraph& graph, Op op, std::vector<NodeId> inputs, Attributes attributes) {
  Node node;
  node.op = op;
  node.stage = Stage::kIndex;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  node.where = graph.where;
  node.shape = infer_shape(graph, node);
  graph.nodes.push_back(std::move(node));
  return static_cast<NodeId>(graph.nodes.size() - 1);
}

/// The product of the query with keys [dim] that the script computes; kNoNode: it does not.
NodeId find_product(const FlowGraph& graph, const std::string& keys) {
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    if (verifying::is_product_of_keys(graph, graph.nodes[id], keys)) return static_cast<NodeId>(id);
  }
  return kNoNode;
}

/// The same, of its own.
NodeId append_product(FlowGraph& graph, const std::string& keys) {
  const NodeId query = append(graph, Op::kQuery, {}, {});
  Attributes named;
  named.field = keys;
  const NodeId read = append(graph, graph.find_field(keys) != nullptr ? Op::kField : Op::kLoad, {}, std::move(named));
  return append(graph, Op::kContract, {query, read}, {});
}

/// What was appended goes before the nodes of later stages.
void order_by_stage(FlowGraph& graph) {
  std::vector<NodeId> order(graph.nodes.size());
  std::iota(order.begin(), order.end(), 0);
  const auto stage = [&](NodeId id) { return graph.nodes[static_cast<size_t>(id)].stage; };
  std::stable_sort(order.begin(), order.end(), [&](NodeId a, NodeId b) { return stage(a) < stage(b); });
  reorder(graph, order);
}

/// Whether there is one key a page.
bool has_single_keys(const FlowGraph& graph, const std::string& keys) {
  if (const Field* const field = graph.find_field(keys)) return field->shape.size() == 1;
  const State* const state = graph.find_state(keys);
  return state != nullptr && state->shape.size() == 2;
}

bool is_accepted(const FlowGraph& graph) {
  if (graph.nodes.size() > GraphLimits::kNodes) return false;
  try {
    verify(graph);
    return true;
  } catch (const FlowError&) {
    return false;
  }
}

}  // namespace

void weigh_summaries(FlowGraph& graph) {
  for (size_t i = 0; i < graph.sources.size(); ++i) {
    const AttentionSource& source = graph.sources[i];
    if (source.logits != kNoNode || !has_single_keys(graph, source.keys)) continue;
    if (const NodeId known = find_product(graph, source.keys); known != kNoNode) {
      graph.sources[i].logits = known;
      continue;
    }
    FlowGraph weighed = graph;
    weighed.sources[i].logits = append_product(weighed, source.keys);
    order_by_stage(weighed);
    if (is_accepted(weighed)) graph = std::move(weighed);
  }
}

}  // namespace sluice::passes
