#include "kernels/cuda/codegen/products.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/codegen/arguments.h"
#include "scripting/graph/ops.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int kStepChannels = 16;  // of one matrix product
constexpr int kMostDim = 256;
constexpr int kMostResults = 32;  // kProductsTaken says all of these
constexpr int kMostLines = 16;    // in a page

/// A part of a block whose channels products can read.
bool has_channels(const FlowLayout& layout, NodeId id) {
  const Node& node = layout.node(id);
  if (!is_block_part(node.op) || node.shape.empty() || node.shape.back().axis != Axis::kDim) return false;
  return part_of(layout.plan, node).type != DataType::kF32;
}

bool is_query(const FlowLayout& layout, NodeId id) {
  return layout.query_only[static_cast<size_t>(id)] && has_axis(layout.node(id).shape, Axis::kDim);
}

/// Finds q and a part in `inputs`, in any order, and adds them; false if there are none, or another q than before.
bool take_factors(const FlowLayout& layout, const std::vector<NodeId>& inputs, Product& product) {
  if (inputs.size() != 2) return false;
  const bool swapped = is_query(layout, inputs[1]);
  const NodeId query = inputs[swapped ? 1 : 0];
  const NodeId part = inputs[swapped ? 0 : 1];
  if (!is_query(layout, query) || !has_channels(layout, part)) return false;
  if (product.query != kNoNode && product.query != query) return false;
  const DataType type = part_of(layout.plan, layout.node(part)).type;
  const bool is_first = product.parts.empty();
  if (!is_first && (layout.node(product.parts.front()).shape != layout.node(part).shape || product.type != type)) return false;
  product.type = type;
  product.query = query;
  product.parts.push_back(part);
  return true;
}

bool take_operands(const FlowLayout& layout, const Node& node, Product& product) {
  if (node.op == Op::kContract) return take_factors(layout, node.inputs, product);
  const Node& bound = layout.node(node.inputs[0]);
  const bool sums = node.op == Op::kSum || node.op == Op::kMean;
  if (!sums || (bound.op != Op::kMaximum && bound.op != Op::kMinimum)) return false;
  product.bound = bound.op == Op::kMaximum ? Product::Bound::kUpper : Product::Bound::kLower;
  return std::all_of(bound.inputs.begin(), bound.inputs.end(), [&](NodeId input) {
    const Node& factors = layout.node(input);
    return factors.op == Op::kMul && take_factors(layout, factors.inputs, product);
  });
}

Shape without(const Shape& shape, Axis one, Axis other) {
  Shape rest;
  for (const Dimension& dimension : shape) {
    if (dimension.axis != one && dimension.axis != other) rest.push_back(dimension);
  }
  return rest;
}

/// The one node that reads `id`, if it is a maximum or a minimum.
NodeId folded_by(const FlowLayout& layout, NodeId id) {
  NodeId reader = kNoNode;
  for (size_t i = 0; i < layout.plan.graph.nodes.size(); ++i) {
    for (const NodeId input : layout.plan.graph.nodes[i].inputs) {
      if (input != id) continue;
      if (reader != kNoNode) return kNoNode;
      reader = static_cast<NodeId>(i);
    }
  }
  if (reader == kNoNode) return kNoNode;
  const Op op = layout.node(reader).op;
  return op == Op::kMax || op == Op::kMin ? reader : kNoNode;
}

}  // namespace

bool Fold::has(NodeId id) const { return std::find(nodes.begin(), nodes.end(), id) != nodes.end(); }

std::string Product::bound_name() const {
  if (bound == Bound::kNone) return "Bound::kNone";
  return bound == Bound::kUpper ? "Bound::kUpper" : "Bound::kLower";
}

std::string Product::query_shape(bool compact) const {
  return fmt::format("QueryShape<{}, {}, {}{}>", steps(), results, compact || of_bytes(), of_bytes() ? ", true" : "");
}

int64_t Product::query_bytes(bool compact) const {
  constexpr int64_t kLaneBytes = 8;
  constexpr int64_t kScaleBytes = 16;                                                               // what sums are multiplied by
  const int lanes = joins_parts() || ((compact || of_bytes()) && tiles() == 1) ? 4 * results : 32;  // of a tile
  return (bound == Bound::kNone ? 1 : 2) * int64_t{kMostParts} * steps() * tiles() * lanes * kLaneBytes +
         (of_bytes() ? kScaleBytes : 0);
}

std::optional<Product> find_product(const FlowLayout& layout, NodeId id) {
  const Node& node = layout.node(id);
  if (node.attributes.axis != Axis::kDim || !reads_along_axis(node.op) || !has_axis(node.shape, Axis::kPage)) return {};
  Product product;
  product.node = id;
  if (!take_operands(layout, node, product)) return {};
  const Shape& part = layout.node(product.parts.front()).shape;
  const Shape& query = layout.node(product.query).shape;
  product.dim = part.back().extent;
  product.line_shape = without(part, Axis::kPage, Axis::kDim);
  product.result_shape = without(query, Axis::kPage, Axis::kDim);
  product.lines = static_cast<int>(elements_per_page(product.line_shape));
  product.results = static_cast<int>(elements_per_page(product.result_shape));
  const bool shares_axis = std::any_of(product.result_shape.begin(), product.result_shape.end(),
                                       [&](const Dimension& dimension) { return has_axis(product.line_shape, dimension.axis); });
  const int extent = query[static_cast<size_t>(find_axis(query, Axis::kDim))].extent;
  const int step = size_of(product.type) == 1 ? 2 * kStepChannels : kStepChannels;  // one matrix has 32 channels of 8 bits
  if (shares_axis || extent != product.dim || product.dim % step != 0 || product.dim > kMostDim) return {};
  if (product.results > kMostResults || product.lines > kMostLines) return {};
  return product;
}

Fold find_fold(const FlowLayout& layout, const Product& product, const std::vector<NodeId>& computed) {
  Fold fold;
  if ((product.lines & (product.lines - 1)) != 0) return fold;
  std::vector<NodeId> nodes;
  size_t lines = 0;  // axes that are folded
  size_t results = 0;
  for (NodeId id = product.node; !layout.slots[static_cast<size_t>(id)].stored;) {
    id = folded_by(layout, id);
    if (id == kNoNode || std::find(computed.begin(), computed.end(), id) == computed.end()) break;
    const Node& reader = layout.node(id);
    if (!nodes.empty() && layout.node(nodes.front()).op != reader.op) break;
    if (has_axis(product.line_shape, reader.attributes.axis)) {
      ++lines;
    } else if (has_axis(product.result_shape, reader.attributes.axis)) {
      ++results;
    } else {
      break;
    }
    nodes.push_back(id);
    const bool of_results = results > 0 && results == product.result_shape.size();
    if (lines == product.line_shape.size() && (results == 0 || of_results)) fold = {nodes, of_results};
  }
  return fold;
}

std::vector<CopiedRun> runs_to_copy(const FlowLayout& layout, const std::vector<Product>& products) {
  std::vector<CopiedRun> parts;
  for (const Product& product : products) {
    for (const NodeId id : product.parts) {
      const int bytes = product.dim * static_cast<int>(size_of(product.type));
      parts.push_back(
          {part_of(layout.plan, layout.node(id)), bytes, product.lines, size_of(product.type) == 1 && product.lines > 1});
    }
  }
  std::sort(parts.begin(), parts.end(), [](const CopiedRun& a, const CopiedRun& b) {
    return std::pair(a.part.in_field_page, a.part.offset) < std::pair(b.part.in_field_page, b.part.offset);
  });
  std::vector<CopiedRun> runs;
  for (const CopiedRun& part : parts) {
    if (!runs.empty() && runs.back().has(part.part)) continue;
    const bool follows = !runs.empty() && runs.back().lines == 1 && part.lines == 1 && runs.back().part.type == part.part.type &&
                         runs.back().part.in_field_page == part.part.in_field_page &&
                         runs.back().part.offset + static_cast<size_t>(runs.back().bytes) == part.part.offset;
    if (follows) {
      runs.back().bytes += part.bytes;
    } else {
      runs.push_back(part);
    }
  }
  return runs;
}

}  // namespace sluice::cuda::codegen
