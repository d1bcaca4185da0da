#pragma once

#include <string>
#include <utility>
#include <vector>

#include "scripting/graph/graph.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/shapes.h"

namespace sluice::testing {

/// Writes graphs by hand; shapes are inferred. Cache-stage nodes must come first.
class GraphBuilder {
 public:
  explicit GraphBuilder(Geometry geometry) {
    graph.name = "built";
    graph.geometry = geometry;
  }

  /// Throws FlowError if the operator does not fit its inputs.
  NodeId add(Stage stage, Op op, std::vector<NodeId> inputs = {}, Attributes attributes = {}, Shape declared = {}) {
    Node node;
    node.op = op;
    node.stage = stage;
    node.inputs = std::move(inputs);
    node.shape = std::move(declared);
    node.attributes = own_attributes(op, attributes);
    node.where = {"built", static_cast<int>(graph.nodes.size()) + 1};
    node.shape = infer_shape(graph, node);
    graph.nodes.push_back(std::move(node));
    return static_cast<NodeId>(graph.nodes.size()) - 1;
  }
  NodeId cache(Op op, std::vector<NodeId> inputs = {}, Attributes attributes = {}) {
    return add(Stage::kCache, op, std::move(inputs), std::move(attributes));
  }
  NodeId index(Op op, std::vector<NodeId> inputs = {}, Attributes attributes = {}) {
    return add(Stage::kIndex, op, std::move(inputs), std::move(attributes));
  }
  void field(const std::string& name, NodeId node, DataType type = DataType::kBF16) {
    graph.fields.push_back({name, node, graph.nodes[static_cast<size_t>(node)].shape, type, {}});
  }
  NodeId read_field(const std::string& name) { return index(Op::kField, {}, named(name)); }
  NodeId select(NodeId score, const Attributes& attributes) {
    const NodeId selection = index(Op::kTopK, {score}, attributes);
    graph.attend_to(selection);
    return selection;
  }
  NodeId after(Op op, std::vector<NodeId> inputs = {}, Attributes attributes = {}) {
    return add(Stage::kAfter, op, std::move(inputs), std::move(attributes));
  }
  void save(const std::string& name, NodeId value, Stage stage = Stage::kIndex, int last = 0) {
    Attributes attributes = named(name);
    attributes.last = last;
    graph.saves.push_back(add(stage, Op::kSave, {value}, attributes));
  }

  static Attributes along(Axis axis) {
    Attributes attributes;
    attributes.axis = axis;
    return attributes;
  }
  static Attributes named(const std::string& name) {
    Attributes attributes;
    attributes.field = name;
    return attributes;
  }
  static Attributes budget(int k, int first = 0, int last = 0) {
    Attributes attributes;
    attributes.k = k;
    attributes.first = first;
    attributes.last = last;
    return attributes;
  }

  FlowGraph graph;
};

/// Mean of the keys scored by the mean query: score [page B].
inline FlowGraph mean_score_graph(Geometry geometry, const Attributes& budget) {
  GraphBuilder b(geometry);
  b.field("centre", b.cache(Op::kMean, {b.cache(Op::kKey)}, b.along(Axis::kToken)));
  const NodeId products = b.index(Op::kContract, {b.index(Op::kQuery), b.read_field("centre")}, b.along(Axis::kDim));
  b.select(b.index(Op::kMean, {products}, b.along(Axis::kHead)), budget);
  return std::move(b.graph);
}

/// Quest (upper bound of q.k over a page): score [page B].
inline FlowGraph quest_graph(Geometry geometry, const Attributes& budget) {
  GraphBuilder b(geometry);
  const NodeId keys = b.cache(Op::kKey);
  b.field("high", b.cache(Op::kMax, {keys}, b.along(Axis::kToken)));
  b.field("low", b.cache(Op::kMin, {keys}, b.along(Axis::kToken)));
  const NodeId query = b.index(Op::kQuery);
  const NodeId high = b.index(Op::kMul, {query, b.read_field("high")});
  const NodeId low = b.index(Op::kMul, {query, b.read_field("low")});
  const NodeId bound = b.index(Op::kSum, {b.index(Op::kMaximum, {high, low})}, b.along(Axis::kDim));
  b.select(b.index(Op::kMax, {bound}, b.along(Axis::kHead)), budget);
  return std::move(b.graph);
}

}  // namespace sluice::testing
