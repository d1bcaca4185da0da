#include <fmt/format.h>

#include <array>

#include "scripting/graph/ops.h"
#include "scripting/lua/functions.h"

namespace sluice {

namespace {

Value unary(const Arguments& arguments, const Function& self) {
  arguments.expect_at_most(1, "it works on one tensor, entry by entry");
  return tensor_value(arguments, arguments.builder().emit(self.op, {arguments.tensor(0)}));
}

Value binary(const Arguments& arguments, const Function& self) {
  arguments.expect_at_most(2, "nest the calls");
  const NodeId a = arguments.tensor(0);
  const NodeId b = arguments.tensor(1);
  return tensor_value(arguments, arguments.builder().emit(self.op, {a, b}));
}

/// (x + a) * b
Value add_mul(const Arguments& arguments, const Function&) {
  GraphBuilder& builder = arguments.builder();
  arguments.expect_at_most(3, "add_mul(x, a, b) is (x + a) * b");
  const NodeId x = arguments.tensor(0);
  const NodeId a = arguments.tensor(1);
  const NodeId b = arguments.tensor(2);
  return tensor_value(arguments, builder.emit(Op::kMul, {builder.emit(Op::kAdd, {x, a}), b}));
}

Value where(const Arguments& arguments, const Function& self) {
  arguments.expect_at_most(4, "where_gt(a, b, x, y): x where a > b, else y");
  Attributes attributes;
  attributes.compare = self.compare;
  std::vector<NodeId> inputs;
  for (size_t i = 0; i < 4; ++i) inputs.push_back(arguments.tensor(i));
  return tensor_value(arguments, arguments.builder().emit(Op::kWhere, std::move(inputs), std::move(attributes)));
}

/// Several axes are reduced one after the other.
Value reduction(const Arguments& arguments, const Function& self) {
  GraphBuilder& builder = arguments.builder();
  NodeId x = arguments.tensor(0);
  for (const Axis axis : arguments.axes_from(1, builder.shape_of(x))) {
    Attributes attributes;
    attributes.axis = axis;
    x = builder.emit(self.op, {x}, std::move(attributes));
  }
  return tensor_value(arguments, x);
}

Value interleave(const Arguments& arguments, const Function& self) {
  arguments.expect_at_most(3, "mean_interleave(x, axis, group)");
  const NodeId x = arguments.tensor(0);
  Attributes attributes;
  attributes.axis = arguments.axis(1);
  attributes.group = arguments.integer(2, "the group");
  return tensor_value(arguments, arguments.builder().emit(self.op, {x}, std::move(attributes)));
}

Value contract(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(3, "dot(a, b, axis)");
  const NodeId a = arguments.tensor(0);
  const NodeId b = arguments.tensor(1);
  Attributes attributes;
  attributes.axis = arguments.axis(2, Axis::kDim);
  return tensor_value(arguments, arguments.builder().emit(Op::kContract, {a, b}, std::move(attributes)));
}

Value kron(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(3, "kron(a, b, axis)");
  const NodeId a = arguments.tensor(0);
  const NodeId b = arguments.tensor(1);
  Attributes attributes;
  attributes.axis = arguments.axis(2);
  return tensor_value(arguments, arguments.builder().emit(Op::kKron, {a, b}, std::move(attributes)));
}

/// softmax and normalize
Value along_axis(const Arguments& arguments, const Function& self) {
  arguments.expect_at_most(2, "x:softmax(axis)");
  const NodeId x = arguments.tensor(0);
  Attributes attributes;
  attributes.axis = arguments.axis(1, Axis::kPage);
  return tensor_value(arguments, arguments.builder().emit(self.op, {x}, std::move(attributes)));
}

Value conv1d(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(3, "conv1d(x, {0.25, 0.5, 0.25}, axis)");
  const NodeId x = arguments.tensor(0);
  Attributes attributes;
  attributes.kernel = arguments.kernel(1);
  attributes.axis = arguments.axis(2, Axis::kPage);
  return tensor_value(arguments, arguments.builder().emit(Op::kConv1d, {x}, std::move(attributes)));
}

Value reshape(const Arguments& arguments, const Function&) {
  GraphBuilder& builder = arguments.builder();
  arguments.expect_at_most(2, "reshape(x, {\"page\", {\"sub\", 4}, {\"dim\", 16}})");
  const NodeId x = arguments.tensor(0);
  Shape shape = arguments.shape(arguments.at(1), builder.shape_of(x));
  return tensor_value(arguments, builder.emit(Op::kReshape, {x}, {}, std::move(shape)));
}

Value mask_slice(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(5, "mask_slice(x, axis, start, stop, value)");
  const NodeId x = arguments.tensor(0);
  Attributes attributes;
  attributes.axis = arguments.axis(1);
  if (arguments.has(2)) attributes.start = arguments.integer(2, "start");
  if (arguments.has(3)) attributes.stop = arguments.integer(3, "stop");
  if (arguments.has(4)) attributes.value = arguments.number(4, "value");
  return tensor_value(arguments, arguments.builder().emit(Op::kMaskSlice, {x}, std::move(attributes)));
}

Value fill(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(2, "fill(value, {\"page\", \"dim\"})");
  Attributes attributes;
  attributes.value = arguments.number(0, "the value");
  Shape shape = arguments.shape(arguments.at(1), {});
  return tensor_value(arguments, arguments.builder().emit(Op::kFill, {}, std::move(attributes), std::move(shape)));
}

/// position and random
Value page_source(const Arguments& arguments, const Function& self) {
  arguments.expect_at_most(0, "it takes no arguments");
  return tensor_value(arguments, arguments.builder().emit(self.op, {}));
}

/// The extent of an axis as a Lua number.
Value extent(const Arguments& arguments, const Function&) {
  const Shape& shape = arguments.builder().shape_of(arguments.tensor(0));
  const Axis axis = arguments.axis(1);
  const int position = find_axis(shape, axis);
  if (position < 0) arguments.fail(fmt::format("{} has no axis \"{}\"", to_string(shape), name_of(axis)));
  if (axis == Axis::kPage) {
    arguments.fail("the number of pages is known only while tokens are generated",
                   "use ratio = 1/8 in selections, or sluice.position(), a tensor");
  }
  return {Value::Kind::kInteger, {}, shape[static_cast<size_t>(position)].extent};
}

constexpr std::array kFunctions = {
    Function{"add", binary, Op::kAdd},
    Function{"sub", binary, Op::kSub},
    Function{"mul", binary, Op::kMul},
    Function{"multiply", binary, Op::kMul},
    Function{"div", binary, Op::kDiv},
    Function{"maximum", binary, Op::kMaximum},
    Function{"minimum", binary, Op::kMinimum},
    Function{"add_mul", add_mul},
    Function{"relu", unary, Op::kRelu},
    Function{"sigmoid", unary, Op::kSigmoid},
    Function{"silu", unary, Op::kSilu},
    Function{"exp", unary, Op::kExp},
    Function{"log", unary, Op::kLog},
    Function{"abs", unary, Op::kAbs},
    Function{"sqrt", unary, Op::kSqrt},
    Function{"where_eq", where, Op::kWhere, Compare::kEq},
    Function{"where_ne", where, Op::kWhere, Compare::kNe},
    Function{"where_gt", where, Op::kWhere, Compare::kGt},
    Function{"where_ge", where, Op::kWhere, Compare::kGe},
    Function{"where_lt", where, Op::kWhere, Compare::kLt},
    Function{"where_le", where, Op::kWhere, Compare::kLe},
    Function{"mean", reduction, Op::kMean},
    Function{"max", reduction, Op::kMax},
    Function{"min", reduction, Op::kMin},
    Function{"l2norm", reduction, Op::kL2Norm},
    Function{"sum", reduction, Op::kSum},
    Function{"mean_interleave", interleave, Op::kMeanInterleave},
    Function{"max_interleave", interleave, Op::kMaxInterleave},
    Function{"min_interleave", interleave, Op::kMinInterleave},
    Function{"l2norm_interleave", interleave, Op::kL2NormInterleave},
    Function{"sum_interleave", interleave, Op::kSumInterleave},
    Function{"dot", contract},
    Function{"gemm", contract},
    Function{"kron", kron},
    Function{"softmax", along_axis, Op::kSoftmax},
    Function{"normalize", along_axis, Op::kNormalize},
    Function{"conv1d", conv1d},
    Function{"reshape", reshape},
    Function{"transpose", unary, Op::kTranspose},
    Function{"mask_slice", mask_slice},
    Function{"fill", fill, Op::kFill, Compare::kEq, false},
    Function{"position", page_source, Op::kPosition, Compare::kEq, false},
    Function{"random", page_source, Op::kRandom, Compare::kEq, false},
    Function{"extent", extent},
};

}  // namespace

std::span<const Function> operator_functions() { return kFunctions; }

}  // namespace sluice
