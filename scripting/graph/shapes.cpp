#include "scripting/graph/shapes.h"

#include <fmt/format.h>

#include <algorithm>

#include "scripting/graph/ops.h"
#include "scripting/graph/verify.h"

namespace sluice {

namespace {

[[noreturn]] void refuse(const Node& node, const std::string& message, std::string hint = {}) {
  throw FlowError(node.where, fmt::format("{}: {}", spoken_name_of(node.op), message), std::move(hint));
}

const Shape& input_shape(const FlowGraph& graph, const Node& node, size_t index) {
  return graph.nodes[static_cast<size_t>(node.inputs[index])].shape;
}

std::string inputs_text(const FlowGraph& graph, const Node& node) {
  std::string text;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i > 0) text += i + 1 == node.inputs.size() ? " and " : ", ";
    text += to_string(input_shape(graph, node, i));
  }
  return text;
}

std::string axes_text(const Shape& shape) {
  std::string text;
  for (const Dimension& dimension : shape) text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", name_of(dimension.axis));
  return text.empty() ? "it is a scalar and has no axis" : "its axes are " + text;
}

/// Position of the attribute's axis in input `index`.
int require_axis(const FlowGraph& graph, const Node& node, size_t index) {
  const Shape& shape = input_shape(graph, node, index);
  const int position = find_axis(shape, node.attributes.axis);
  if (position < 0) {
    refuse(node, fmt::format("got {}, which has no axis \"{}\"", to_string(shape), name_of(node.attributes.axis)),
           axes_text(shape));
  }
  return position;
}

/// Union of the axes of all inputs, those of the first input first, the page axis before all.
Shape broadcast(const FlowGraph& graph, const Node& node, Axis* free_axis = nullptr) {
  Shape result;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    for (const Dimension& dimension : input_shape(graph, node, i)) {
      const int position = find_axis(result, dimension.axis);
      if (position < 0) {
        result.insert(dimension.axis == Axis::kPage ? result.begin() : result.end(), dimension);
      } else if (result[position].extent != dimension.extent && !(free_axis && *free_axis == dimension.axis)) {
        refuse(node,
               fmt::format("got {}: axis \"{}\" has {} entries in one and {} in the other", inputs_text(graph, node),
                           name_of(dimension.axis), result[position].extent, dimension.extent),
               "axes of the same name must have the same extent; reduce or reshape one of them");
      }
    }
  }
  return result;
}

void refuse_axis(const FlowGraph& graph, const Node& node, Axis axis, const std::string& hint) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.attributes.axis == axis) {
      refuse(node, fmt::format("cannot work along \"{}\" (got {})", name_of(axis), inputs_text(graph, node)), hint);
    }
  }
}

Shape without_axis(Shape shape, Axis axis) {
  std::erase_if(shape, [axis](const Dimension& dimension) { return dimension.axis == axis; });
  return shape;
}

/// Row-wide operators keep their input for every page of a request in scratch memory, and want every entry in every page.
void check_row_input(const FlowGraph& graph, const Node& node) {
  const Shape& shape = input_shape(graph, node, 0);
  if (has_axis(shape, Axis::kToken)) {
    refuse(node, fmt::format("cannot work along \"page\" over tokens (got {})", to_string(shape)),
           "the last page may hold fewer tokens; reduce \"token\" first");
  }
  if (elements_per_page(shape) > GraphLimits::kRowElements) {
    refuse(node,
           fmt::format("along \"page\" got {}: {} numbers a page, at most {} fit", to_string(shape), elements_per_page(shape),
                       GraphLimits::kRowElements),
           "reduce \"head\" or \"dim\" first");
  }
}

Shape along_axis(const FlowGraph& graph, const Node& node, bool keeps_axis) {
  require_axis(graph, node, 0);
  if (node.attributes.axis == Axis::kPage) check_row_input(graph, node);
  const Shape& shape = input_shape(graph, node, 0);
  return keeps_axis ? shape : without_axis(shape, node.attributes.axis);
}

Shape interleave_shape(const FlowGraph& graph, const Node& node) {
  Shape shape = input_shape(graph, node, 0);
  const int position = require_axis(graph, node, 0);
  const int extent = shape[position].extent;
  const int group = node.attributes.group;
  if (group < 1 || extent % group != 0) {
    refuse(node, fmt::format("cannot cut \"{}\" of {} into groups of {}", name_of(node.attributes.axis), to_string(shape), group),
           fmt::format("the group must divide {}", extent));
  }
  if (node.attributes.axis != Axis::kSub && has_axis(shape, Axis::kSub)) {
    refuse(node, fmt::format("got {}, which has an axis \"sub\" already", to_string(shape)), "reduce \"sub\" first");
  }
  shape[position] = {Axis::kSub, extent / group};
  return shape;
}

Shape contract_shape(const FlowGraph& graph, const Node& node) {
  if (node.attributes.axis == Axis::kPage) {
    refuse(node, fmt::format("cannot contract over \"page\" (got {})", inputs_text(graph, node)),
           "multiply, then reduce: (a * b):sum(\"page\")");
  }
  require_axis(graph, node, 0);
  require_axis(graph, node, 1);
  return without_axis(broadcast(graph, node), node.attributes.axis);
}

Shape kron_shape(const FlowGraph& graph, const Node& node) {
  Axis axis = node.attributes.axis;
  if (axis == Axis::kPage) refuse(node, "cannot pair pages with pages", "name another axis");
  if (axis == Axis::kToken) refuse(node, "cannot pair tokens: the last page may hold fewer", "reduce \"token\" first");
  const int a = find_axis(input_shape(graph, node, 0), axis);
  const int b = find_axis(input_shape(graph, node, 1), axis);
  if (a < 0 && b < 0) {
    refuse(node, fmt::format("got {}: neither has an axis \"{}\"", inputs_text(graph, node), name_of(axis)),
           "name an axis that one of them has");
  }
  const int64_t extent =
      int64_t{a < 0 ? 1 : input_shape(graph, node, 0)[a].extent} * (b < 0 ? 1 : input_shape(graph, node, 1)[b].extent);
  if (extent > GraphLimits::kElements)
    refuse(node, fmt::format("the result would have {} entries along \"{}\"", extent, name_of(axis)));
  Shape shape = broadcast(graph, node, &axis);
  shape[find_axis(shape, axis)].extent = static_cast<int>(extent);
  return shape;
}

Shape reshape_shape(const FlowGraph& graph, const Node& node) {
  const Shape& from = input_shape(graph, node, 0);
  const Shape& to = node.shape;
  if (has_axis(from, Axis::kToken) || has_axis(to, Axis::kToken)) {
    refuse(node,
           fmt::format("from {} to {}: tokens cannot be reshaped, the last page may hold fewer", to_string(from), to_string(to)),
           "reduce \"token\" first");
  }
  if (has_axis(from, Axis::kPage) != has_axis(to, Axis::kPage)) {
    refuse(node, fmt::format("from {} to {}: the page axis must stay as it is", to_string(from), to_string(to)),
           has_axis(from, Axis::kPage) ? "begin the new axes with \"page\"" : "leave \"page\" out of the new axes");
  }
  if (elements_per_page(from) != elements_per_page(to)) {
    refuse(node,
           fmt::format("from {} to {}: {} elements cannot become {}", to_string(from), to_string(to), elements_per_page(from),
                       elements_per_page(to)),
           "the products of the extents must agree");
  }
  return to;
}

Shape transpose_shape(const FlowGraph& graph, const Node& node) {
  Shape shape = input_shape(graph, node, 0);
  const size_t inner = shape.size() - (has_axis(shape, Axis::kPage) ? 1 : 0);
  if (inner < 2) refuse(node, fmt::format("got {}, wants two axes beside \"page\"", to_string(shape)));
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  return shape;
}

Shape source_shape(const FlowGraph& graph, const Node& node) {
  const Geometry& geometry = graph.geometry;
  switch (node.op) {
    case Op::kQuery:
      return {{Axis::kHead, geometry.group}, {Axis::kDim, geometry.head_dim}};
    case Op::kKey:
    case Op::kValue: {
      Shape shape = {{Axis::kToken, geometry.page}, {Axis::kDim, geometry.head_dim}};
      if (node.stage != Stage::kCache) shape.insert(shape.begin(), {Axis::kPage, kDynamic});
      return shape;
    }
    case Op::kField: {
      const Field* field = graph.find_field(node.attributes.field);
      if (!field) refuse(node, fmt::format("no field is called \"{}\"", node.attributes.field));
      Shape shape = field->shape;
      shape.insert(shape.begin(), {Axis::kPage, kDynamic});
      return shape;
    }
    case Op::kFill:
      check_shape(node.shape, "fill", node.where);
      if (node.stage == Stage::kCache && has_axis(node.shape, Axis::kPage)) {
        refuse(node, "a page is filled by itself in the cache stage", "leave \"page\" out");
      }
      return node.shape;
    case Op::kPosition:
    case Op::kRandom:
      return {{Axis::kPage, kDynamic}};
    case Op::kMass:
      return {{Axis::kPage, kDynamic}, {Axis::kToken, geometry.page}, {Axis::kHead, geometry.group}};
    case Op::kLoad: {
      const State* state = graph.find_state(node.attributes.field);
      if (!state) refuse(node, fmt::format("no state is called \"{}\"", node.attributes.field));
      return state->shape;
    }
    default:
      return {};
  }
}

/// Scores of selections: one number a page.
void check_score(const FlowGraph& graph, const Node& node) {
  const Shape& shape = input_shape(graph, node, 0);
  if (shape.size() == 1 && shape[0].axis == Axis::kPage) return;
  if (!has_axis(shape, Axis::kPage)) {
    refuse(node, fmt::format("wants one score a page, [page B], and got {}", to_string(shape)),
           "score something that has a page axis, such as a cached field");
  }
  const std::string_view extra = name_of(shape.back().axis);
  refuse(node, fmt::format("wants one score a page, [page B], and got {}", to_string(shape)),
         fmt::format("reduce \"{}\" first, for example score:max(\"{}\")", extra, extra));
}

/// One number a token.
void check_token_score(const FlowGraph& graph, const Node& node) {
  const Shape& shape = input_shape(graph, node, 0);
  const Shape wanted = {{Axis::kPage, kDynamic}, {Axis::kToken, graph.geometry.page}};
  if (shape == wanted) return;
  refuse(node, fmt::format("wants one score a token, {}, and got {}", to_string(wanted), to_string(shape)),
         has_axis(shape, Axis::kHead) ? "reduce \"head\" first, for example score:max(\"head\")"
                                      : "for example q:dot(c.k):max(\"head\")");
}

Shape shape_of(const FlowGraph& graph, const Node& node) {
  const Op op = node.op;
  if (is_source(op)) return source_shape(graph, node);
  if (is_unary_elementwise(op)) return input_shape(graph, node, 0);
  if (is_binary_elementwise(op) || op == Op::kWhere) return broadcast(graph, node);
  if (is_reduction(op)) return along_axis(graph, node, false);
  if (is_interleave(op)) return interleave_shape(graph, node);
  switch (op) {
    case Op::kContract:
      return contract_shape(graph, node);
    case Op::kKron:
      return kron_shape(graph, node);
    case Op::kConv1d:
      refuse_axis(graph, node, Axis::kToken, "the last page may hold fewer tokens; reduce \"token\" first");
      return along_axis(graph, node, true);
    case Op::kSoftmax:
    case Op::kNormalize:
      return along_axis(graph, node, true);
    case Op::kMaskSlice:
      require_axis(graph, node, 0);
      return input_shape(graph, node, 0);
    case Op::kReshape:
      check_shape(node.shape, "reshape", node.where);
      return reshape_shape(graph, node);
    case Op::kTranspose:
      return transpose_shape(graph, node);
    case Op::kTopK:
    case Op::kApproxTopK:
    case Op::kTopP:
      check_score(graph, node);
      return {};
    case Op::kTopKTokens:
      check_token_score(graph, node);
      return {};
    case Op::kThreshold:
      check_score(graph, node);
      if (!input_shape(graph, node, 1).empty()) {
        refuse(node, fmt::format("wants a bound [] and got {}", to_string(input_shape(graph, node, 1))),
               "reduce the bound to one number, for example score:mean(\"page\")");
      }
      return {};
    default:
      return {};
  }
}

}  // namespace

void check_shape(const Shape& shape, const std::string& what, const SourceLocation& where) {
  int64_t elements = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto& [axis, extent] = shape[i];
    if (static_cast<size_t>(axis) > static_cast<size_t>(Axis::kSub))
      throw FlowError(where, what + ": an axis that does not exist");
    if (static_cast<size_t>(find_axis(shape, axis)) != i) {
      throw FlowError(where, fmt::format("{}: axis \"{}\" occurs twice", what, name_of(axis)), "each axis may occur once");
    }
    if (axis == Axis::kPage) {
      if (i != 0) throw FlowError(where, what + ": the page axis must be the first");
      if (extent != kDynamic) throw FlowError(where, what + ": the number of pages is not fixed", "give \"page\" no extent");
      continue;
    }
    if (extent < 1) throw FlowError(where, fmt::format("{}: axis \"{}\" has {} entries", what, name_of(axis), extent));
    elements *= extent;
    if (elements > GraphLimits::kElements) {
      throw FlowError(where, fmt::format("{}: {} is more than {} numbers a page", what, to_string(shape), GraphLimits::kElements),
                      "reduce an axis earlier, or use dot, which does not keep the products");
    }
  }
}

Shape infer_shape(const FlowGraph& graph, const Node& node) {
  Shape shape = shape_of(graph, node);
  check_shape(shape, std::string(spoken_name_of(node.op)), node.where);
  return shape;
}

}  // namespace sluice
