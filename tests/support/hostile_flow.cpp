#include "tests/support/hostile_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>

#include "scripting/graph/ops.h"
#include "scripting/graph/verify.h"
#include "tests/support/graph_builder.h"

namespace sluice::testing {

namespace {

/// Draws patterns one after the other. One that goes past a limit is taken back as a whole.
class HostileDrawing {
 public:
  HostileDrawing(uint64_t seed, const Geometry* model) : random_(seed), model_(model), builder_({}) {}

  FlowGraph run() {
    while (true) {
      try {
        builder_ = GraphBuilder(draw_geometry());
        values_.clear();
        return drawn();
      } catch (const FlowError&) {
        continue;  // the cache stage has left no room for another
      }
    }
  }

 private:
  FlowGraph drawn() {
    draw_cache();
    values_.clear();
    draw_sources();
    const int patterns = number(1, 7);
    for (int i = 0; i < patterns; ++i) attempt([&] { draw_pattern(); });
    attempt([&] { draw_saves(); });
    draw_selection();
    verify(builder_.graph);
    return std::move(builder_.graph);
  }

  int number(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(int percent) { return number(1, 100) <= percent; }
  /// As many numbers of one digit as of two, three ...
  int magnitude(int high) {
    return static_cast<int>(std::exp(std::uniform_real_distribution<>(0, std::log(high + 1.0))(random_)));
  }
  template <class T, size_t N>
  T one_of(const T (&values)[N]) {
    return values[number(0, static_cast<int>(N) - 1)];
  }

  Geometry draw_geometry() {
    constexpr int kDims[] = {64, 64, 128, 128, 256, 1, 33, 1024};
    constexpr int kPages[] = {8, 16, 16, 32, 128};
    constexpr DataType kTypes[] = {DataType::kBF16, DataType::kBF16, DataType::kBF16,
                                   DataType::kF32,  DataType::kE4M3, DataType::kE5M2};
    int group = chance(10) ? number(1, GraphLimits::kGroup) : number(1, 8);
    int dim = one_of(kDims);
    if (model_ != nullptr) group = model_->group, dim = model_->head_dim;
    return {dim, group, dim > 512 ? 8 : one_of(kPages), one_of(kTypes)};
  }

  const FlowGraph& graph() const { return builder_.graph; }
  const Shape& shape_of(NodeId id) const { return graph().nodes[static_cast<size_t>(id)].shape; }

  /// What cannot be added, or would be refused later, leaves nothing behind.
  template <class Draw>
  void attempt(const Draw& draw) {
    const FlowGraph before = graph();
    const std::vector<NodeId> values = values_;
    try {
      draw();
      verify_unfinished(graph());
    } catch (const FlowError&) {
      builder_.graph = before;
      values_ = values;
    }
  }

  NodeId add(Op op, std::vector<NodeId> inputs = {}, Attributes attributes = {}, Shape declared = {}) {
    return builder_.add(stage_, op, std::move(inputs), std::move(attributes), std::move(declared));
  }
  NodeId keep(NodeId id) {
    values_.push_back(id);
    return id;
  }
  NodeId any_value() {
    const int last = static_cast<int>(values_.size()) - 1;
    return values_[static_cast<size_t>(std::max(number(0, last), number(0, last)))];
  }
  NodeId any_paged() {
    std::vector<NodeId> paged;
    for (const NodeId id : values_) {
      if (has_axis(shape_of(id), Axis::kPage)) paged.push_back(id);
    }
    return paged[static_cast<size_t>(number(0, static_cast<int>(paged.size()) - 1))];
  }
  static Attributes of_value(double value) {
    Attributes attributes;
    attributes.value = value;
    return attributes;
  }
  Attributes kernel(Axis axis, int most) {
    Attributes attributes = GraphBuilder::along(axis);
    attributes.kernel.resize(2 * static_cast<size_t>(magnitude(most) / 2) + 1);
    for (float& tap : attributes.kernel) tap = static_cast<float>(number(-4, 4)) * 0.25F;
    return attributes;
  }
  NodeId reduced(NodeId x, Axis axis) {
    constexpr Op kReductions[] = {Op::kMean, Op::kMax, Op::kMin, Op::kL2Norm};
    return add(one_of(kReductions), {x}, GraphBuilder::along(axis));
  }
  /// [page]
  NodeId score_of(NodeId x) {
    while (shape_of(x).size() > 1) x = reduced(x, shape_of(x).back().axis);
    return x;
  }
  Op elementwise() {
    constexpr Op kOps[] = {Op::kAdd, Op::kSub, Op::kMul, Op::kMaximum, Op::kMinimum};
    return one_of(kOps);
  }

  // Patterns of either stage.

  void draw_operators() {
    const int count = magnitude(1000);
    for (int i = 0; i < count; ++i) {
      const std::span<const OpInfo> ops = all_ops();
      const OpInfo& info = ops[static_cast<size_t>(number(0, static_cast<int>(ops.size()) - 1))];
      if (is_source(info.op) || is_selection(info.op) || info.op == Op::kSave || info.op == Op::kReshape) continue;
      if (!exists_in(info, stage_)) continue;
      std::vector<NodeId> inputs;
      for (int k = 0; k < info.inputs; ++k) inputs.push_back(any_value());
      Attributes attributes = kernel(static_cast<Axis>(number(0, 4)), 9);
      attributes.group = 1 << number(0, 3);
      attributes.start = number(-3, 3);
      attributes.compare = static_cast<Compare>(number(0, 5));
      try {
        keep(add(info.op, std::move(inputs), attributes));
      } catch (const FlowError&) {
        continue;  // it does not fit
      }
    }
  }
  /// Each value is made of the two before it: paths double, or nearly so.
  void draw_ladder() {
    NodeId older = any_value();
    NodeId newer = any_value();
    const bool same = chance(30);
    for (int i = magnitude(2500); i > 0; --i) {
      const NodeId next = add(elementwise(), {same ? newer : older, newer});
      older = newer;
      newer = next;
    }
    keep(newer);
  }
  void draw_chain() {
    constexpr Op kOps[] = {Op::kRelu, Op::kSigmoid, Op::kSilu, Op::kExp, Op::kLog, Op::kAbs, Op::kSqrt};
    NodeId x = any_value();
    for (int i = magnitude(3500); i > 0; --i) x = add(one_of(kOps), {x});
    if (stage_ == Stage::kCache && chance(50) && has_axis(shape_of(x), Axis::kDim)) x = reduced(x, Axis::kDim);
    keep(x);
  }
  void draw_kernels() {
    NodeId x = any_value();
    if (shape_of(x).empty()) return;
    for (int i = magnitude(60); i > 0; --i) x = add(Op::kConv1d, {x}, kernel(shape_of(x).back().axis, GraphLimits::kKernel - 1));
    keep(x);
  }
  void draw_fill() {
    Shape shape;
    if (stage_ == Stage::kIndex && chance(70)) shape.push_back({Axis::kPage, kDynamic});
    if (chance(80)) shape.push_back({Axis::kSub, magnitude(GraphLimits::kElements)});
    keep(add(Op::kFill, {}, of_value(number(-4, 4) * 0.5), shape));
  }

  void draw_cache() {
    stage_ = Stage::kCache;
    keep(add(Op::kKey));
    keep(add(Op::kValue));
    keep(add(Op::kConstant, {}, of_value(0.5)));
    for (int i = number(0, 4); i > 0; --i) {
      attempt([&] {
        switch (number(0, 4)) {
          case 0:
            return draw_operators();
          case 1:
            return draw_ladder();
          case 2:
            return draw_chain();
          case 3:
            return draw_kernels();
          default:
            return draw_fill();
        }
      });
    }
    const int fields = chance(10) ? number(1, GraphLimits::kFields) : number(1, 3);
    constexpr DataType kTypes[] = {DataType::kBF16, DataType::kBF16, DataType::kF32, DataType::kE4M3};
    builder_.field("field0", reduced(values_.front(), Axis::kToken), one_of(kTypes));
    for (int i = 1; i < fields; ++i) builder_.field(fmt::format("field{}", i), any_value(), one_of(kTypes));
    stage_ = Stage::kIndex;
  }

  // Patterns of the index stage.

  void draw_sources() {
    keep(add(Op::kQuery));
    keep(add(Op::kConstant, {}, of_value(2)));
    keep(add(Op::kPosition));
    if (chance(30)) keep(add(Op::kKey));
    if (chance(30)) keep(add(Op::kRandom));
    for (const Field& field : graph().fields) keep(builder_.read_field(field.name));
    if (chance(60)) attempt([&] { draw_fill(); });
    if (chance(40)) attempt([&] { draw_states(); });
  }
  void draw_states() {
    State state{{}, {{Axis::kPage, kDynamic}}, 0, {}};
    if (chance(30)) state.shape.push_back({Axis::kSub, magnitude(64)});
    if (chance(20)) state.shape = {{Axis::kHead, graph().geometry.group}};
    const int states = magnitude(GraphLimits::kStates);
    for (int i = 0; i < states; ++i) {
      state.name = fmt::format("state{}", i);
      builder_.graph.states.push_back(state);
      keep(add(Op::kLoad, {}, GraphBuilder::named(state.name)));
    }
  }
  /// Each state is saved as the next one was loaded, or as something that fits.
  void draw_saves() {
    const std::vector<State> states = graph().states;
    for (size_t i = 0; i < states.size(); ++i) {
      std::vector<NodeId> fitting;
      for (const NodeId id : values_) {
        if (shape_of(id) == states[i].shape) fitting.push_back(id);
      }
      const size_t which = chance(50) ? (i + 1) % fitting.size() : fitting.size() - 1;
      builder_.save(states[i].name, fitting[which]);
    }
  }
  /// Numbers of all pages become one, of which pages make numbers again: a phase each.
  void draw_phases() {
    const NodeId wide = any_paged();
    NodeId x = any_value();
    for (int i = magnitude(600); i > 0; --i) {
      NodeId y = score_of(add(elementwise(), {chance(50) ? wide : any_paged(), x}));
      if (chance(20)) y = add(Op::kSoftmax, {y}, GraphBuilder::along(Axis::kPage));
      if (chance(10)) y = add(Op::kConv1d, {y}, kernel(Axis::kPage, GraphLimits::kKernel - 1));
      x = reduced(y, Axis::kPage);
      if (chance(50)) x = add(elementwise(), {x, add(Op::kSigmoid, {x})});
    }
    keep(add(Op::kMul, {any_paged(), x}));
  }
  /// Much that is made of the query alone, and read in many places.
  void draw_query() {
    NodeId x = add(Op::kMax, {add(Op::kQuery)}, GraphBuilder::along(Axis::kHead));
    for (int i = magnitude(800); i > 0; --i)
      x = chance(20) ? add(Op::kSoftmax, {x}, GraphBuilder::along(Axis::kDim)) : add(Op::kSilu, {x});
    NodeId s = add(Op::kMean, {x}, GraphBuilder::along(Axis::kDim));
    for (int i = magnitude(300); i > 0; --i) {
      const NodeId y = score_of(add(elementwise(), {any_paged(), s}));
      s = add(Op::kAdd, {reduced(y, Axis::kPage), s});
    }
    keep(add(Op::kMul, {any_paged(), s}));
  }
  /// Products of the query with fields, summed over channels.
  void draw_products() {
    const NodeId query = any_value();
    NodeId sum = any_paged();
    for (int i = magnitude(400); i > 0; --i) {
      NodeId x = add(elementwise(), {chance(70) ? values_.front() : query, any_paged()});
      for (int k = magnitude(12); k > 0; --k) x = add(elementwise(), {x, chance(50) ? x : any_value()});
      if (has_axis(shape_of(x), Axis::kDim)) x = add(Op::kSum, {x}, GraphBuilder::along(Axis::kDim));
      sum = add(elementwise(), {score_of(sum), score_of(x)});
    }
    keep(sum);
  }
  void draw_reshapes() {
    NodeId x = any_paged();
    for (int i = magnitude(300); i > 0; --i) {
      if (shape_of(x).size() < 2) x = add(Op::kMul, {x, values_.front()});
      Shape to = {{Axis::kPage, kDynamic}};
      const auto elements = static_cast<int>(elements_per_page(shape_of(x)));
      const int outer = elements % 4 == 0 ? 4 : 1;
      to.push_back({chance(50) ? Axis::kHead : Axis::kSub, outer});
      to.push_back({Axis::kDim, elements / outer});
      x = add(Op::kReshape, {x}, {}, to);
      if (chance(50)) x = add(Op::kTranspose, {x});
      if (chance(40)) x = add(Op::kAdd, {x, x});
      if (chance(10)) x = add(Op::kKron, {x, any_value()}, GraphBuilder::along(Axis::kDim));
    }
    keep(x);
  }
  /// Four operands, each another source.
  void draw_choices() {
    for (int i = magnitude(300); i > 0; --i) {
      Attributes attributes;
      attributes.compare = static_cast<Compare>(number(0, 5));
      NodeId x = add(Op::kWhere, {any_paged(), any_value(), any_value(), any_value()}, attributes);
      if (chance(30)) x = reduced(score_of(x), Axis::kPage);
      keep(x);
    }
  }
  void draw_pattern() {
    switch (number(0, 10)) {
      case 0:
        return draw_operators();
      case 1:
        return draw_ladder();
      case 2:
        return draw_chain();
      case 3:
        return draw_kernels();
      case 4:
        return draw_fill();
      case 5:
        return draw_phases();
      case 6:
        return draw_query();
      case 7:
        return draw_products();
      case 8:
        return draw_reshapes();
      default:
        return draw_choices();
    }
  }

  // Selections.

  NodeId draw_one_selection() {
    Attributes attributes;
    attributes.k = chance(10) ? number(1, GraphLimits::kPages) : magnitude(200);
    attributes.first = number(0, 3);
    attributes.last = chance(80) ? number(1, 3) : 0;
    if (chance(20)) attributes.ratio = number(0, 10) * 0.1;
    const int kind = number(1, 10);
    if (kind == 1) {
      attributes.first += attributes.last == 0 ? 1 : 0;
      return add(Op::kWindow, {}, GraphBuilder::budget(0, attributes.first, attributes.last));
    }
    attributes.k = std::max(attributes.k, 1);
    const NodeId score = score_of(any_paged());
    if (kind == 2) {
      attributes.last = std::max(attributes.last, 1);
      NodeId bound = score;
      if (has_axis(shape_of(bound), Axis::kPage)) bound = reduced(bound, Axis::kPage);
      return add(Op::kThreshold, {score, bound}, GraphBuilder::budget(0, attributes.first, attributes.last));
    }
    attributes.tolerate = 0.1;
    return add(kind == 3 ? Op::kApproxTopK : Op::kTopK, {score}, attributes);
  }
  void draw_unions() {
    std::vector<NodeId> all;
    const int leaves = chance(15) ? magnitude(1200) : magnitude(9);
    for (int i = 0; i < leaves; ++i) all.push_back(draw_one_selection());
    const auto any = [&] { return all[static_cast<size_t>(number(0, static_cast<int>(all.size()) - 1))]; };
    for (int i = chance(50) ? magnitude(3000) : 0; i > 0; --i)
      all.push_back(add(Op::kUnion, {chance(50) ? all.back() : any(), any()}));
    for (size_t i = 2; i < all.size() && i <= 3000 && chance(99); ++i)
      all.push_back(add(Op::kUnion, {all[all.size() - 2], all.back()}));
    builder_.graph.attend_to(all.back());
  }
  void draw_selection() {
    attempt([&] { draw_unions(); });
    for (int i = 0; i < 10 && graph().selection() == kNoNode; ++i)
      attempt([&] { builder_.graph.attend_to(draw_one_selection()); });
    if (graph().selection() == kNoNode) builder_.graph.attend_to(add(Op::kWindow, {}, GraphBuilder::budget(0, 1, 1)));
  }

  std::mt19937_64 random_;
  const Geometry* model_;
  GraphBuilder builder_;
  Stage stage_ = Stage::kCache;
  std::vector<NodeId> values_;  // of the stage
};

}  // namespace

FlowGraph hostile_flow(uint64_t seed, const Geometry* model) { return HostileDrawing(seed, model).run(); }

}  // namespace sluice::testing
