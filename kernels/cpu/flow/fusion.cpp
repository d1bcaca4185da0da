#include "kernels/cpu/flow/fusion.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "kernels/cpu/flow/instruction.h"

namespace sluice::cpu::flows {

namespace {

/// Shorter rows leave too much of a vector empty.
constexpr int64_t kLeastExtent = 16;

std::optional<Reduction> fusible_reduction(Op op) {
  switch (op) {
    case Op::kMean:
      return Reduction::kMean;
    case Op::kMax:
      return Reduction::kMax;
    case Op::kMin:
      return Reduction::kMin;
    case Op::kL2Norm:
      return Reduction::kL2Norm;
    case Op::kSum:
    case Op::kContract:
      return Reduction::kSum;
    default:
      return std::nullopt;
  }
}

class Fuser {
 public:
  Fuser(const Plan& plan, NodeId id, const FusionRules& rules) : plan_(plan), node_(node(id)), rules_(rules) {}

  std::optional<Fusion> run() {
    const std::optional<Reduction> reduction = fusible_reduction(node_.op);
    if (!reduction) return std::nullopt;
    const Axis axis = node_.attributes.axis;
    const Shape& reduced = node(node_.inputs[0]).shape;
    const int position = find_axis(reduced, axis);
    if (axis == Axis::kPage || position < 0) return std::nullopt;
    if (reduced[position].extent < kLeastExtent) return std::nullopt;
    kernel().reduction = *reduction;
    kernel().rows = static_cast<int>(elements_per_page(node_.shape));
    elements_ = int64_t{kernel().rows} * reduced[position].extent;

    if (node_.op == Op::kContract) {
      if (!append_step(node_, 1)) return std::nullopt;
    } else {
      const bool innermost = position + 1 == static_cast<int>(reduced.size());
      if (!innermost || !operand_of(node_.inputs[0], 1)) return std::nullopt;
    }
    const bool reads_pages = std::any_of(kernel().leaves.begin(), kernel().leaves.end(), [](const Leaf& l) { return l.in_page; });
    if (fusion_.absorbed.empty() && !reads_pages) return std::nullopt;
    find_form();
    return std::move(fusion_);
  }

 private:
  using Step = Expression::Step;

  const Node& node(NodeId id) const { return plan_.graph.nodes[static_cast<size_t>(id)]; }
  FusedReduction& kernel() { return fusion_.kernel; }

  /// Operand number for the value of `id`: computed inside if that repeats no work, else a leaf.
  /// `depth`: steps from there to the root, all of which the expression must hold; so calls nest no deeper.
  std::optional<int> operand_of(NodeId id, int depth) {
    const bool fits = depth <= Expression::kMostSteps && elements_per_page(node(id).shape) == elements_;
    if (rules_.absorbable[static_cast<size_t>(id)] && fits) {
      const Fusion before = fusion_;
      if (const std::optional<int> inside = append_step(node(id), depth)) {
        fusion_.absorbed.push_back(id);
        return inside;
      }
      fusion_ = before;
    }
    return leaf_of(id);
  }

  std::optional<int> append_step(const Node& current, int depth) {
    Step step;
    step.op = current.op == Op::kContract ? Op::kMul : current.op;
    step.compare = current.attributes.compare;
    for (size_t i = 0; i < current.inputs.size(); ++i) {
      const std::optional<int> operand = operand_of(current.inputs[i], depth + 1);
      if (!operand) return std::nullopt;
      step.operands[i] = *operand;
    }
    Expression& expression = kernel().expression;
    if (expression.count == Expression::kMostSteps) return std::nullopt;
    expression.steps[expression.count] = step;
    return Expression::kMostLeaves + expression.count++;
  }

  std::optional<int> leaf_of(NodeId id) {
    for (size_t i = 0; i < fusion_.sources.size(); ++i) {
      if (fusion_.sources[i].node == id) return static_cast<int>(i);
    }
    Leaf leaf;
    leaf.step = stride_of(node(id).shape, node_.attributes.axis);
    if (leaf.step > 1 || fusion_.sources.size() == Expression::kMostLeaves) return std::nullopt;
    leaf.rows = rows_of(node(id).shape);
    Fusion::Source source{.node = id};
    if (rules_.in_page[static_cast<size_t>(id)]) {
      leaf.in_page = true;
      source.is_field = node(id).op == Op::kField;
      std::tie(leaf.type, source.page_offset) = place_in_page(node(id));
      leaf.bytes = elements_per_page(node(id).shape) * static_cast<int64_t>(size_of(leaf.type));
    }
    kernel().leaves.push_back(std::move(leaf));
    fusion_.sources.push_back(source);
    return static_cast<int>(fusion_.sources.size()) - 1;
  }

  std::pair<DataType, size_t> place_in_page(const Node& source) const {
    if (source.op == Op::kKey) return {plan_.layout.kv, plan_.layout.key_offset};
    if (source.op == Op::kValue) return {plan_.layout.kv, plan_.layout.value_offset};
    for (size_t i = 0; i < plan_.graph.fields.size(); ++i) {
      if (plan_.graph.fields[i].name == source.attributes.field)
        return {plan_.graph.fields[i].type, plan_.fields().field_offsets[i]};
    }
    throw InternalError("flow: no field \"" + source.attributes.field + "\"");
  }

  /// First element that an operand of `shape` has for each row of the result.
  std::vector<int32_t> rows_of(const Shape& shape) const {
    std::vector<int32_t> rows = {0};
    for (const Dimension& dimension : node_.shape) {
      if (dimension.axis == Axis::kPage) continue;
      const int64_t stride = stride_of(shape, dimension.axis);
      std::vector<int32_t> longer;
      for (const int32_t row : rows) {
        for (int i = 0; i < dimension.extent; ++i) longer.push_back(static_cast<int32_t>(row + i * stride));
      }
      rows = std::move(longer);
    }
    return rows;
  }

  bool is_product(int operand) const {
    return operand >= Expression::kMostLeaves &&
           fusion_.kernel.expression.steps[operand - Expression::kMostLeaves].op == Op::kMul;
  }
  /// The two leaves of a product, the one in a buffer first; nothing unless the other one is in pages.
  std::optional<std::pair<int, int>> leaves_of_product(const Step& step) const {
    auto [x, y] = std::pair(step.operands[0], step.operands[1]);
    if (std::max(x, y) >= Expression::kMostLeaves) return std::nullopt;
    const std::vector<Leaf>& leaves = fusion_.kernel.leaves;
    if (leaves[x].in_page) std::swap(x, y);
    if (leaves[x].in_page || !leaves[y].in_page || leaves[x].step != 1 || leaves[y].step != 1) return std::nullopt;
    return std::pair(x, y);
  }

  void find_form() {
    const Expression& expression = kernel().expression;
    if (kernel().reduction != Reduction::kSum && kernel().reduction != Reduction::kMean) return;
    const Step& root = expression.steps[std::max(expression.count - 1, 0)];
    if (expression.count == 1 && root.op == Op::kMul) {
      if (const auto product = leaves_of_product(root)) take_form(FusedForm::kDot, {product->first, product->second});
    } else if (expression.count == 3 && (root.op == Op::kMaximum || root.op == Op::kMinimum) && is_product(root.operands[0]) &&
               is_product(root.operands[1])) {
      const auto first = leaves_of_product(expression.steps[0]);
      const auto second = leaves_of_product(expression.steps[1]);
      if (!first || !second || first->first != second->first) return;
      const Leaf& y = kernel().leaves[first->second];
      const Leaf& z = kernel().leaves[second->second];
      if (y.type != z.type || y.rows != z.rows || has_axis(node(fusion_.sources[first->first].node).shape, Axis::kPage)) return;
      const FusedForm form = root.op == Op::kMaximum ? FusedForm::kUpper : FusedForm::kLower;
      take_form(form, {first->first, first->second, second->second});
    }
  }

  /// Puts `order` first among the leaves.
  void take_form(FusedForm form, const std::vector<int>& order) {
    FusedReduction& fused = kernel();
    fused.form = form;
    std::vector<int> place(Expression::kMostLeaves, -1);
    std::vector<Leaf> leaves;
    std::vector<Fusion::Source> sources;
    for (const int leaf : order) {
      if (place[leaf] >= 0) continue;  // maximum(x * y, x * y)
      place[leaf] = static_cast<int>(leaves.size());
      leaves.push_back(fused.leaves[leaf]);
      sources.push_back(fusion_.sources[leaf]);
    }
    if (leaves.size() != order.size()) {
      fused.form = FusedForm::kGeneral;
      return;
    }
    for (int s = 0; s < fused.expression.count; ++s) {
      for (int& operand : fused.expression.steps[s].operands) {
        if (operand < Expression::kMostLeaves && place[operand] >= 0) operand = place[operand];
      }
    }
    fused.leaves = std::move(leaves);
    fusion_.sources = std::move(sources);
    const std::vector<int32_t>& rows = fused.leaves[1].rows;
    const auto first_other = std::find_if(rows.begin(), rows.end(), [&](int32_t row) { return row != rows[0]; });
    fused.shared_rows = static_cast<int>(first_other - rows.begin());
    for (size_t row = 0; row < rows.size(); ++row) {
      if (rows[row] != rows[row - row % fused.shared_rows]) fused.shared_rows = 1;
    }
  }

  const Plan& plan_;
  const Node& node_;
  const FusionRules& rules_;
  int64_t elements_ = 0;  // that are reduced, of one page
  Fusion fusion_;
};

}  // namespace

std::optional<Fusion> fuse_reduction(const Plan& plan, NodeId id, const FusionRules& rules) {
  return Fuser(plan, id, rules).run();
}

}  // namespace sluice::cpu::flows
