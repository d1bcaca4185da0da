#include <cmath>
#include <optional>

#include "scripting/graph/ops.h"
#include "scripting/passes/passes.h"
#include "scripting/passes/rewrite.h"

namespace sluice::passes {

namespace {

/// Finds earlier nodes that hold the same numbers as a node. Adding 0 is not among the rules: -0 + 0 is +0.
class Simplifier {
 public:
  explicit Simplifier(FlowGraph& graph) : graph_(graph), replacement_(graph.nodes.size()) {}

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node& node = graph_.nodes[i];
      for (NodeId& input : node.inputs) input = replacement_[static_cast<size_t>(input)];
      rewrite(node);
      const NodeId same = find_same(node);
      const bool replaceable = same != kNoNode && graph_.nodes[static_cast<size_t>(same)].shape == node.shape;
      replacement_[i] = replaceable ? same : static_cast<NodeId>(i);
    }
    redirect(graph_, replacement_);
  }

 private:
  const Node& operand(const Node& node, size_t index) const { return graph_.nodes[static_cast<size_t>(node.inputs[index])]; }

  std::optional<double> constant(const Node& node, size_t index) const {
    const Node& input = operand(node, index);
    if (input.op != Op::kConstant) return std::nullopt;
    return input.attributes.value;
  }

  /// The operand of a multiplication by `factor`, or kNoNode.
  NodeId multiplied_by(const Node& node, double factor) const {
    if (node.op != Op::kMul) return kNoNode;
    if (constant(node, 1) == factor) return node.inputs[0];
    if (constant(node, 0) == factor) return node.inputs[1];
    return kNoNode;
  }

  NodeId find_same(const Node& node) const {
    switch (node.op) {
      case Op::kMul: {
        if (const NodeId same = multiplied_by(node, 1); same != kNoNode) return same;
        const NodeId negated = multiplied_by(node, -1);
        return negated == kNoNode ? kNoNode : multiplied_by(graph_.nodes[static_cast<size_t>(negated)], -1);
      }
      case Op::kDiv:
        return constant(node, 1) == 1.0 ? node.inputs[0] : kNoNode;
      case Op::kSub: {
        const auto zero = constant(node, 1);
        return zero == 0.0 && !std::signbit(*zero) ? node.inputs[0] : kNoNode;
      }
      case Op::kMaximum:
      case Op::kMinimum:
      case Op::kUnion:
        return node.inputs[0] == node.inputs[1] ? node.inputs[0] : kNoNode;
      case Op::kRelu:
      case Op::kAbs:
        return operand(node, 0).op == node.op ? node.inputs[0] : kNoNode;
      case Op::kTranspose:
        return operand(node, 0).op == Op::kTranspose ? operand(node, 0).inputs[0] : kNoNode;
      case Op::kReshape:
        return node.inputs[0];  // taken only where the shapes agree
      default:
        return kNoNode;
    }
  }

  /// Cheaper operators of the same result.
  void rewrite(Node& node) const {
    if (node.op == Op::kReshape && operand(node, 0).op == Op::kReshape) node.inputs[0] = operand(node, 0).inputs[0];
    if (node.op == Op::kKron) {
      const Axis axis = node.attributes.axis;
      if (!has_axis(operand(node, 0).shape, axis) || !has_axis(operand(node, 1).shape, axis)) {
        node.op = Op::kMul;
        node.attributes = Attributes{};
      }
    }
  }

  FlowGraph& graph_;
  std::vector<NodeId> replacement_;
};

}  // namespace

void simplify(FlowGraph& graph) { Simplifier(graph).run(); }

void contract(FlowGraph& graph) {
  const std::vector<int> readers = count_readers(graph);
  for (Node& node : graph.nodes) {
    // The page axis is reduced row-wide, after the products of all pages.
    if (node.op != Op::kSum || node.attributes.axis == Axis::kPage) continue;
    const Node& product = graph.nodes[static_cast<size_t>(node.inputs[0])];
    if (product.op != Op::kMul || readers[static_cast<size_t>(node.inputs[0])] != 1) continue;
    const auto has = [&](size_t i) {
      return has_axis(graph.nodes[static_cast<size_t>(product.inputs[i])].shape, node.attributes.axis);
    };
    if (!has(0) || !has(1)) continue;
    node.op = Op::kContract;
    node.inputs = product.inputs;
  }
}

}  // namespace sluice::passes
