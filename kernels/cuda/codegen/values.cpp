#include "kernels/cuda/codegen/values.h"

#include <bit>
#include <cmath>

#include "scripting/graph/ops.h"

namespace sluice::cuda::codegen {
namespace {

int extent_of(const Shape& shape, Axis axis) {
  const int position = find_axis(shape, axis);
  return position < 0 ? 1 : shape[static_cast<size_t>(position)].extent;
}

const char* comparison(Compare compare) {
  switch (compare) {
    case Compare::kEq:
      return "==";
    case Compare::kNe:
      return "!=";
    case Compare::kGt:
      return ">";
    case Compare::kGe:
      return ">=";
    case Compare::kLt:
      return "<";
    default:
      return "<=";
  }
}

}  // namespace

std::string literal(double value) {
  const auto number = static_cast<float>(value);
  if (number == 0 && !std::signbit(number)) return "0.0F";
  if (number == 1) return "1.0F";
  return fmt::format("number({:#010x}U)", std::bit_cast<uint32_t>(number));
}

std::string type_name(DataType type) {
  switch (type) {
    case DataType::kF32:
      return "F32";
    case DataType::kBF16:
      return "BF16";
    case DataType::kE4M3:
      return "Byte<E4M3>";
    default:
      return "Byte<E5M2>";
  }
}

std::string linear(const Shape& shape, const Index& index) {
  std::string position;
  for (const auto& [axis, extent] : shape) {
    if (axis == Axis::kPage) continue;
    position = position.empty() ? at(index, axis) : fmt::format("({} * {} + {})", position, extent, at(index, axis));
  }
  return position.empty() ? "0" : position;
}

Index split(Writer& writer, const Shape& shape, const std::string& position) {
  Index index;
  int64_t inner = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    const auto& [axis, extent] = shape[i];
    if (axis == Axis::kPage) continue;
    const bool outermost = i == 0 || (i == 1 && shape[0].axis == Axis::kPage);
    std::string part = inner == 1 ? position : fmt::format("{} / {}", position, inner);
    if (!outermost) part = fmt::format("{} % {}", part, extent);
    at(index, axis) = fmt::format("i_{}", name_of(axis));
    writer.line("const int i_{} = {};", name_of(axis), part);
    inner *= extent;
  }
  return index;
}

std::optional<std::string> place_of(const KernelScope& scope, NodeId id, const Index& index) {
  const FlowLayout& layout = *scope.layout;
  const Node& node = layout.node(id);
  const KernelSlot& own = scope.slots[static_cast<size_t>(id)];
  const std::string element = linear(node.shape, index);
  if (own.kind == KernelSlot::Kind::kFixed) return fmt::format("fixed[{} + {}]", own.offset, element);
  if (own.kind == KernelSlot::Kind::kTile) {
    if (scope.stage == Stage::kCache) return fmt::format("tile[{} + {}]", own.offset, element);
    return fmt::format("tile[{} + ({} - {}) * {} + {}]", own.offset * scope.tile_pages, at(index, Axis::kPage), scope.tile_first,
                       elements_per_page(node.shape), element);
  }
  const RowSlot& slot = layout.slots[static_cast<size_t>(id)];
  if (!slot.stored) return {};
  if (scope.holds_row) {
    if (!slot.paged) return fmt::format("constants[{} + {}]", slot.offset, element);
    const std::string values = fmt::format("held + {} * {} + {}", slot.offset, scope.held_pages, element);
    if (scope.reads_neighbours) {
      return fmt::format("*blocks.of_page({}, {}, {}, share)", values, at(index, Axis::kPage), slot.per_page);
    }
    return fmt::format("*({} + ({} - first) * {})", values, at(index, Axis::kPage), slot.per_page);
  }
  if (!slot.paged) return fmt::format("row.values[{} + {}]", slot.offset, element);
  return fmt::format("row.values[{}LL + {}LL * row.arguments.capacity + static_cast<long long>({}) * {} + {}]",
                     layout.fixed_numbers + slot.buffer * FlowLayout::kPad + layout.shift_of(id), slot.offset,
                     at(index, Axis::kPage), slot.per_page, element);
}

std::string held(const KernelScope& scope, const Shape& shape, Axis axis, const Index& index) {
  if (axis == Axis::kPage) return "row.pages";
  const int extent = extent_of(shape, axis);
  if (axis != Axis::kToken || extent != scope.layout->plan.graph.geometry.page) return std::to_string(extent);
  if (scope.stage == Stage::kCache) return "tokens";
  if (!has_axis(shape, Axis::kPage)) return std::to_string(extent);
  return fmt::format("({} == row.pages - 1 ? row.last_tokens : {})", at(index, Axis::kPage), extent);
}

std::string Values::key_of(NodeId id, const Index& index) const {
  std::string key = std::to_string(id);
  for (const Dimension& dimension : scope_.layout->node(id).shape) key.append(":").append(at(index, dimension.axis));
  return key;
}

std::string Values::read(NodeId id, const Index& index) {
  if (scope_.layout->node(id).op == Op::kConstant) return literal(scope_.layout->node(id).attributes.value);
  const std::string key = key_of(id, index);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  std::optional<std::string> text = override_ ? override_(id, index) : std::nullopt;
  if (!text) text = place_of(scope_, id, index);
  if (!text) text = expression(id, index);
  std::string name = fmt::format("{}{}", prefix_, count_++);
  writer_.line("const float {} = {};", name, *text);
  known_[key] = name;
  return name;
}

std::string Values::compute(NodeId id, const Index& index) { return expression(id, index); }

bool is_tile_part(const Plan& plan, const BlockPart& part) { return part.in_field_page || !plan.has_field_pages(); }

std::string tile_block(const BlockPart& part, const std::string& at) {
  return fmt::format("row.{}(ids[{}])", part.in_field_page ? "field_block" : "block", at);
}

std::string row_block(const BlockPart& part, const std::string& position) {
  return part.in_field_page ? fmt::format("row.field_block(row.field_ids[{}])", position)
                            : fmt::format("row.block(row.ids[{}])", position);
}

std::string Values::source(const Node& node, const Index& index) const {
  const FlowLayout& layout = *scope_.layout;
  const auto in_block = [&](const BlockPart& part) {
    std::string block = "block";
    if (scope_.stage == Stage::kIndex) {
      const std::string& position = at(index, Axis::kPage);
      block = scope_.in_tile && is_tile_part(layout.plan, part) ? tile_block(part, fmt::format("{} - first", position))
                                                                : row_block(part, position);
    }
    return fmt::format("load<{}>({} + {}, {})", type_name(part.type), block, part.offset, linear(node.shape, index));
  };
  switch (node.op) {
    case Op::kQuery:
      return fmt::format("row.query({})", linear(node.shape, index));
    case Op::kKey:
    case Op::kValue:
    case Op::kField:
      return in_block(part_of(layout.plan, node));
    case Op::kFill:
      return literal(node.attributes.value);
    case Op::kPosition:
      return fmt::format("static_cast<float>({})", at(index, Axis::kPage));
    case Op::kRandom:
      return fmt::format("random_uniform(row.key(RandomPurpose::kRandom), {})", at(index, Axis::kPage));
    case Op::kMass: {
      const Geometry& geometry = layout.plan.graph.geometry;
      const std::string& position = at(index, Axis::kPage);
      const std::string place = scope_.knows_place ? "place"
                                : scope_.in_tile   ? fmt::format("places[{} - first]", position)
                                                   : fmt::format("row.mass_place({})", position);
      return fmt::format("row.mass({}, {}, {}, {}, {}, {})", place, position, at(index, Axis::kToken), at(index, Axis::kHead),
                         geometry.group, geometry.page);
    }
    case Op::kLoad: {
      const StateSlot& slot = layout.states[static_cast<size_t>(layout.state_index(node.attributes.field))];
      const std::string states = fmt::format("row.states({}, {})", layout.state_page_numbers, layout.state_fixed_numbers);
      const std::string element = linear(node.shape, index);
      if (!slot.paged) {
        return fmt::format("{}[{}LL * row.state_capacity() + {} + {}]", states, layout.state_page_numbers, slot.offset, element);
      }
      return fmt::format("{}[{}LL * row.state_capacity() + static_cast<long long>({}) * {} + {}]", states, slot.offset,
                         at(index, Axis::kPage), elements_per_page(node.shape), element);
    }
    default:
      throw InternalError("flow: " + std::string(name_of(node.op)) + " is no source");
  }
}

std::string Values::reshaped(const Node& node, const Index& index) {
  const NodeId input = node.inputs[0];
  const Shape& from = scope_.layout->node(input).shape;
  const std::string position = fmt::format("{}r{}", prefix_, count_++);
  writer_.line("const int {} = {};", position, linear(node.shape, index));
  Index source;
  at(source, Axis::kPage) = at(index, Axis::kPage);
  int64_t inner = 1;
  for (size_t i = from.size(); i-- > 0;) {
    const auto& [axis, extent] = from[i];
    if (axis == Axis::kPage) continue;
    const std::string name = fmt::format("{}r{}", prefix_, count_++);
    writer_.line("const int {} = {} / {} % {};", name, position, inner, extent);
    at(source, axis) = name;
    inner *= extent;
  }
  return read(input, source);
}

std::string Values::masked(const Node& node, const Index& index) {
  const Attributes& a = node.attributes;
  const std::string length = held(scope_, node.shape, a.axis, index);
  const auto bound = [&](int value) {
    if (value == kToEnd) return std::string(length);
    return value < 0 ? fmt::format("({} + {})", length, value) : std::to_string(value);
  };
  const std::string x = read(node.inputs[0], index);
  const std::string& position = at(index, a.axis);
  return fmt::format("{} >= {} && {} < {} ? {} : {}", position, bound(a.start), position, bound(a.stop), x, literal(a.value));
}

std::string Values::kronecker(const Node& node, const Index& index) {
  const Axis axis = node.attributes.axis;
  const int inner = extent_of(scope_.layout->node(node.inputs[1]).shape, axis);
  Index outer_index = index;
  Index inner_index = index;
  if (inner > 1) at(outer_index, axis) = fmt::format("({} / {})", at(index, axis), inner);
  at(inner_index, axis) = inner > 1 ? fmt::format("({} % {})", at(index, axis), inner) : "0";
  const std::string a = read(node.inputs[0], outer_index);
  return fmt::format("{} * {}", a, read(node.inputs[1], inner_index));
}

std::string Values::expression(NodeId id, const Index& index) {
  const Node& node = scope_.layout->node(id);
  if (is_source(node.op)) return source(node, index);
  if (reads_along_axis(node.op)) throw InternalError("flow: node " + std::to_string(id) + " is read before it is computed");
  switch (node.op) {
    case Op::kReshape:
      return reshaped(node, index);
    case Op::kMaskSlice:
      return masked(node, index);
    case Op::kKron:
      return kronecker(node, index);
    case Op::kTranspose:
      return read(node.inputs[0], index);
    default:
      break;
  }
  std::array<std::string, 4> x;
  for (size_t i = 0; i < node.inputs.size(); ++i) x[i] = read(node.inputs[i], index);
  switch (node.op) {
    case Op::kAdd:
      return fmt::format("{} + {}", x[0], x[1]);
    case Op::kSub:
      return fmt::format("{} - {}", x[0], x[1]);
    case Op::kMul:
      return fmt::format("{} * {}", x[0], x[1]);
    case Op::kDiv:
      return fmt::format("{} / {}", x[0], x[1]);
    case Op::kMaximum:
      return fmt::format("max_of({}, {})", x[0], x[1]);
    case Op::kMinimum:
      return fmt::format("min_of({}, {})", x[0], x[1]);
    case Op::kRelu:
      return fmt::format("relu({})", x[0]);
    case Op::kSigmoid:
      return fmt::format("sigmoid({})", x[0]);
    case Op::kSilu:
      return fmt::format("silu({})", x[0]);
    case Op::kExp:
      return fmt::format("expf({})", x[0]);
    case Op::kLog:
      return fmt::format("logf({})", x[0]);
    case Op::kAbs:
      return fmt::format("fabsf({})", x[0]);
    case Op::kSqrt:
      return fmt::format("sqrtf({})", x[0]);
    case Op::kWhere:
      return fmt::format("{} {} {} ? {} : {}", x[0], comparison(node.attributes.compare), x[1], x[2], x[3]);
    default:
      throw InternalError("flow: no text for " + std::string(name_of(node.op)));
  }
}

}  // namespace sluice::cuda::codegen
