#include <cmath>

#include "scripting/graph/ops.h"
#include "scripting/passes/passes.h"

namespace sluice::passes {

namespace {

bool holds(Compare compare, float a, float b) {
  switch (compare) {
    case Compare::kEq:
      return a == b;
    case Compare::kNe:
      return a != b;
    case Compare::kGt:
      return a > b;
    case Compare::kGe:
      return a >= b;
    case Compare::kLt:
      return a < b;
    case Compare::kLe:
      return a <= b;
  }
  return false;
}

/// The operator on numbers, in float32. Operands are never NaN: `verify` refuses such constants.
float evaluate(const Node& node, const std::vector<float>& x) {
  switch (node.op) {
    case Op::kAdd:
      return x[0] + x[1];
    case Op::kSub:
      return x[0] - x[1];
    case Op::kMul:
      return x[0] * x[1];
    case Op::kDiv:
      return x[0] / x[1];
    case Op::kMaximum:
      return x[0] < x[1] ? x[1] : x[0];
    case Op::kMinimum:
      return x[1] < x[0] ? x[1] : x[0];
    case Op::kRelu:
      return x[0] > 0 ? x[0] : 0.0f;
    case Op::kSigmoid:
      return 1 / (1 + std::exp(-x[0]));
    case Op::kSilu:
      return x[0] / (1 + std::exp(-x[0]));
    case Op::kExp:
      return std::exp(x[0]);
    case Op::kLog:
      return std::log(x[0]);
    case Op::kAbs:
      return std::abs(x[0]);
    case Op::kSqrt:
      return std::sqrt(x[0]);
    case Op::kWhere:
      return holds(node.attributes.compare, x[0], x[1]) ? x[2] : x[3];
    default:
      return NAN;
  }
}

}  // namespace

void fold_constants(FlowGraph& graph) {
  for (Node& node : graph.nodes) {
    if (!is_unary_elementwise(node.op) && !is_binary_elementwise(node.op) && node.op != Op::kWhere) continue;
    std::vector<float> operands;
    for (const NodeId input : node.inputs) {
      const Node& operand = graph.nodes[static_cast<size_t>(input)];
      if (operand.op == Op::kConstant) operands.push_back(static_cast<float>(operand.attributes.value));
    }
    if (operands.size() != node.inputs.size()) continue;
    const float value = evaluate(node, operands);
    if (std::isnan(value)) continue;
    node.op = Op::kConstant;
    node.inputs.clear();
    node.attributes = Attributes{};
    node.attributes.value = value;
  }
}

}  // namespace sluice::passes
