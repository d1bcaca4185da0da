#include <cmath>
#include <optional>

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

/// The larger of two numbers, or the smaller. Of two zeros of different signs devices give either.
std::optional<float> pick(bool first, float a, float b) {
  if (a == b && std::signbit(a) != std::signbit(b)) return std::nullopt;
  return first ? a : b;
}

/// The operator on numbers, in float32, where every device computes the same bits: arithmetic and square roots are rounded
/// correctly everywhere, exponentials and logarithms are not. Operands are never NaN: `verify` refuses such constants.
std::optional<float> evaluate(const Node& node, const std::vector<float>& x) {
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
      return pick(x[0] > x[1], x[0], x[1]);
    case Op::kMinimum:
      return pick(x[0] < x[1], x[0], x[1]);
    case Op::kRelu:
      return pick(x[0] > 0, x[0], 0.0f);
    case Op::kAbs:
      return std::abs(x[0]);
    case Op::kSqrt:
      return std::sqrt(x[0]);
    case Op::kWhere:
      return holds(node.attributes.compare, x[0], x[1]) ? x[2] : x[3];
    default:
      return std::nullopt;
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
    const std::optional<float> value = evaluate(node, operands);
    if (!value || std::isnan(*value)) continue;
    node.op = Op::kConstant;
    node.inputs.clear();
    node.attributes = Attributes{};
    node.attributes.value = *value;
  }
}

}  // namespace sluice::passes
