#include "kernels/cpu/flow/instruction.h"

#include <span>
#include <string>

namespace sluice::cpu::flows {

namespace {

const Shape& shape_of(const FlowGraph& graph, NodeId id) { return graph.nodes[static_cast<size_t>(id)].shape; }

struct Loop {
  int64_t extent = 1;
  std::array<int64_t, LoopNest::kMaxOperands> stride{};
};

/// Fewer and longer loops: drops those of one iteration and joins neighbours that every operand walks evenly. The first
/// loop is that over pages if `paged`; its extent counts what it covers in one page.
LoopNest join_loops(std::span<const Loop> loops, bool paged) {
  std::vector<Loop> joined;
  for (size_t i = 0; i < loops.size(); ++i) {
    const bool is_page_loop = paged && i == 0;
    if (loops[i].extent == 1 && !is_page_loop) continue;
    if (!joined.empty()) {
      Loop& outer = joined.back();
      bool even = true;
      for (int o = 0; o < LoopNest::kMaxOperands; ++o) even = even && outer.stride[o] == loops[i].stride[o] * loops[i].extent;
      if (even) {
        outer.extent *= loops[i].extent;
        outer.stride = loops[i].stride;
        continue;
      }
    }
    joined.push_back(loops[i]);
  }
  if (joined.empty()) joined.push_back({});
  if (joined.size() > LoopNest::kMaxRank) throw InternalError("flow: too many axes");
  LoopNest nest;
  nest.rank = static_cast<int>(joined.size());
  nest.paged = paged;
  for (int loop = 0; loop < nest.rank; ++loop) {
    nest.extent[loop] = joined[loop].extent;
    for (int o = 0; o < LoopNest::kMaxOperands; ++o) nest.stride[o][loop] = joined[loop].stride[o];
  }
  return nest;
}

Loop loop_over(const Dimension& dimension, std::span<const Shape* const> operands) {
  Loop loop;
  loop.extent = dimension.axis == Axis::kPage ? 1 : dimension.extent;
  for (size_t o = 0; o < operands.size(); ++o) loop.stride[o] = stride_of(*operands[o], dimension.axis);
  return loop;
}

LoopNest broadcast_nest(const Shape& result, std::span<const Shape* const> operands) {
  std::vector<Loop> loops;
  for (const Dimension& dimension : result) loops.push_back(loop_over(dimension, operands));
  return join_loops(loops, has_axis(result, Axis::kPage));
}

/// The Kronecker product is an elementwise product with its axis taken apart: i from a, j from b.
LoopNest kron_nest(const Shape& result, const Shape& a, const Shape& b, Axis axis) {
  const std::array<const Shape*, 2> operands = {&a, &b};
  std::vector<Loop> loops;
  for (const Dimension& dimension : result) {
    if (dimension.axis != axis) {
      loops.push_back(loop_over(dimension, operands));
      continue;
    }
    const int in_a = find_axis(a, axis);
    const int in_b = find_axis(b, axis);
    loops.push_back({in_a < 0 ? 1 : a[in_a].extent, {stride_of(a, axis), 0}});
    loops.push_back({in_b < 0 ? 1 : b[in_b].extent, {0, stride_of(b, axis)}});
  }
  return join_loops(loops, has_axis(result, Axis::kPage));
}

/// [outer, extent, inner] of one page, or of all pages (extent to be filled in) along the page axis.
AxisView view_along(const Shape& shape, Axis axis) {
  AxisView view;
  const int position = find_axis(shape, axis);
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    const int64_t extent = shape[i].axis == Axis::kPage ? 1 : shape[i].extent;
    (i < position ? view.outer : i == position ? view.extent : view.inner) *= extent;
  }
  view.used = view.extent;
  return view;
}

bool is_along_axis(Op op) {
  switch (op) {
    case Op::kMean:
    case Op::kMax:
    case Op::kMin:
    case Op::kL2Norm:
    case Op::kSum:
    case Op::kMeanInterleave:
    case Op::kMaxInterleave:
    case Op::kMinInterleave:
    case Op::kL2NormInterleave:
    case Op::kSumInterleave:
    case Op::kSoftmax:
    case Op::kNormalize:
    case Op::kConv1d:
    case Op::kMaskSlice:
      return true;
    default:
      return false;
  }
}

template <class Named>
int index_of(const std::vector<Named>& all, const std::string& name) {
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].name == name) return static_cast<int>(i);
  }
  throw InternalError("flow: no field or state \"" + name + "\"");
}

}  // namespace

int64_t stride_of(const Shape& shape, Axis axis) {
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i].axis == axis) return stride;
    stride *= shape[i].extent;
  }
  return 0;
}

Instruction lower_node(const FlowGraph& graph, NodeId id) {
  const Node& node = graph.nodes[static_cast<size_t>(id)];
  const Axis axis = node.attributes.axis;
  Instruction result;
  result.node = id;
  result.op = node.op;
  result.elements = elements_per_page(node.shape);
  result.paged = has_axis(node.shape, Axis::kPage);
  std::array<const Shape*, LoopNest::kMaxOperands> shapes{};
  for (size_t i = 0; i < node.inputs.size(); ++i) shapes[i] = &shape_of(graph, node.inputs[i]);
  const std::span<const Shape* const> operands(shapes.data(), node.inputs.size());

  if (is_along_axis(node.op)) {
    result.along_page = axis == Axis::kPage;
    result.paged = has_axis(*shapes[0], Axis::kPage);
    result.view = view_along(*shapes[0], axis);
  } else if (node.op == Op::kContract) {
    result.nest = broadcast_nest(node.shape, operands);
    result.view = view_along(*shapes[0], axis);
    result.a_step = stride_of(*shapes[0], axis);
    result.b_step = stride_of(*shapes[1], axis);
  } else if (node.op == Op::kKron) {
    result.nest = kron_nest(node.shape, *shapes[0], *shapes[1], axis);
  } else if (node.op == Op::kTranspose || !operands.empty()) {
    result.nest = broadcast_nest(node.shape, operands);
  } else if (node.op == Op::kField) {
    result.index = index_of(graph.fields, node.attributes.field);
  } else if (node.op == Op::kLoad) {
    result.index = index_of(graph.states, node.attributes.field);
  }
  const bool along_tokens = (is_along_axis(node.op) || node.op == Op::kContract) && axis == Axis::kToken;
  const bool holds_tokens = node.stage == Stage::kCache || result.paged;
  result.ragged = along_tokens && holds_tokens && result.view.extent == graph.geometry.page;
  return result;
}

}  // namespace sluice::cpu::flows
