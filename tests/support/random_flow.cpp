#include "tests/support/random_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "scripting/graph/ops.h"
#include "scripting/graph/verify.h"
#include "tests/support/graph_builder.h"

namespace sluice::testing {

namespace {

/// Keeps the oracle quick.
constexpr int64_t kMostElements = 1024;

class Drawing {
 public:
  explicit Drawing(uint64_t seed, bool covers = false, bool after = false, bool evicts = false, bool tokens = false,
                   bool keeps_summaries = false)
      : random_(seed),
        builder_(draw_geometry()),
        covers_(covers),
        after_(after),
        evicts_(evicts),
        tokens_(tokens),
        keeps_summaries_(keeps_summaries) {}

  FlowGraph run() {
    draw_cache();
    draw_index();
    draw_selection();
    if (after_) draw_after();
    if (evicts_) draw_eviction();
    verify(builder_.graph);
    return std::move(builder_.graph);
  }

 private:
  int number(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(int percent) { return number(1, 100) <= percent; }
  template <class T, size_t N>
  T one_of(const T (&values)[N]) {
    return values[number(0, static_cast<int>(N) - 1)];
  }

  Geometry draw_geometry() {
    constexpr int kDims[] = {1, 4, 8, 12, 16, 20, 33, 64};
    constexpr int kPages[] = {8, 8, 16, 32};
    constexpr DataType kTypes[] = {DataType::kF32, DataType::kBF16};
    return {one_of(kDims), number(1, 16), one_of(kPages), one_of(kTypes)};
  }

  const Shape& shape_of(NodeId id) const { return builder_.graph.nodes[static_cast<size_t>(id)].shape; }

  /// Adds a node if its operator fits and its value is not too large.
  bool try_add(Stage stage, Op op, std::vector<NodeId> inputs, const Attributes& attributes, Shape declared = {}) {
    const FlowGraph& graph = builder_.graph;
    try {
      const NodeId id = builder_.add(stage, op, std::move(inputs), attributes, std::move(declared));
      if (elements_per_page(shape_of(id)) > kMostElements && op != Op::kKey && op != Op::kValue) {
        builder_.graph.nodes.pop_back();
        return false;
      }
      values_.push_back(id);
      return graph.nodes.size() > 0;
    } catch (const FlowError&) {
      return false;
    }
  }

  NodeId any_value() {
    // Later values more often, so that chains grow.
    const int last = static_cast<int>(values_.size()) - 1;
    return values_[std::max(number(0, last), number(0, last))];
  }

  Attributes draw_attributes() {
    Attributes attributes;
    attributes.axis = static_cast<Axis>(number(0, 4));
    constexpr int kGroups[] = {1, 2, 4, 8};
    attributes.group = one_of(kGroups);
    attributes.start = number(-6, 6);
    attributes.stop = chance(30) ? kToEnd : number(-6, 12);
    attributes.value = number(-4, 4) * 0.25;
    attributes.compare = static_cast<Compare>(number(0, 5));
    const int taps = 2 * number(0, 3) + 1;
    for (int tap = 0; tap < taps; ++tap) attributes.kernel.push_back(static_cast<float>(number(-4, 4)) * 0.25F);
    return attributes;
  }

  Shape draw_reshape(const Shape& from) {
    Shape to;
    if (has_axis(from, Axis::kPage)) to.push_back({Axis::kPage, kDynamic});
    const auto elements = static_cast<int>(elements_per_page(from));
    std::vector<int> divisors;
    for (int d = 1; d <= elements; ++d) {
      if (elements % d == 0) divisors.push_back(d);
    }
    const int outer = divisors[static_cast<size_t>(number(0, static_cast<int>(divisors.size()) - 1))];
    to.push_back({chance(50) ? Axis::kSub : Axis::kHead, outer});
    to.push_back({Axis::kDim, elements / outer});
    return to;
  }

  void draw_operator(Stage stage) {
    const std::span<const OpInfo> ops = all_ops();
    const OpInfo& info = ops[static_cast<size_t>(number(0, static_cast<int>(ops.size()) - 1))];
    if (is_source(info.op) || is_selection(info.op) || info.op == Op::kSave) return;
    if (!exists_in(info, stage)) return;
    std::vector<NodeId> inputs;
    for (int i = 0; i < info.inputs; ++i) inputs.push_back(any_value());
    Shape declared = info.op == Op::kReshape ? draw_reshape(shape_of(inputs[0])) : Shape{};
    try_add(stage, info.op, std::move(inputs), draw_attributes(), std::move(declared));
  }

  void draw_source(Stage stage, Op op, const std::string& name = {}) {
    Attributes attributes = draw_attributes();
    attributes.field = name;
    Shape declared;
    if (op == Op::kFill) {
      if (stage != Stage::kCache && chance(50)) declared.push_back({Axis::kPage, kDynamic});
      if (chance(60)) declared.push_back({Axis::kDim, builder_.graph.geometry.head_dim});
    }
    try_add(stage, op, {}, attributes, declared);
  }

  void draw_cache() {
    draw_source(Stage::kCache, Op::kKey);
    draw_source(Stage::kCache, Op::kValue);
    draw_source(Stage::kCache, Op::kConstant);
    draw_source(Stage::kCache, Op::kFill);
    const int attempts = number(5, 60);
    for (int i = 0; i < attempts; ++i) draw_operator(Stage::kCache);
    constexpr DataType kTypes[] = {DataType::kF32, DataType::kBF16, DataType::kE4M3, DataType::kE5M2};
    const int fields = number(1, 3);
    for (int i = 0; i < fields; ++i) builder_.field(fmt::format("field{}", i), any_value(), one_of(kTypes));
    if (covers_) draw_summaries();
  }

  /// Fields [dim] or [sub, dim] of a page that stand for it.
  void draw_summaries() {
    constexpr DataType kTypes[] = {DataType::kF32, DataType::kBF16, DataType::kE4M3};
    constexpr Op kWhole[] = {Op::kMean, Op::kMax, Op::kMin};
    constexpr Op kGroups[] = {Op::kMeanInterleave, Op::kMaxInterleave};
    Attributes along = GraphBuilder::along(Axis::kToken);
    along.group = 4;
    several_ = !keeps_summaries_ && chance(25);
    for (const auto& [name, op] : {std::pair("ksum", Op::kKey), {"vsum", Op::kValue}}) {
      builder_.field(name, builder_.cache(several_ ? one_of(kGroups) : one_of(kWhole), {builder_.cache(op)}, along),
                     one_of(kTypes));
    }
  }

  /// Summaries of the pages that `selection` leaves out, or all of them that say what their pages weigh.
  void draw_cover(NodeId selection) {
    AttentionSource summaries{.selection = selection, .others = true, .keys = "ksum", .values = "vsum", .beside = {}};
    if (keeps_summaries_ && chance(80)) summaries.keys = kKeptKeys;
    if (keeps_summaries_ && (summaries.keys == "ksum" || chance(80))) summaries.values = kKeptValues;
    if (!several_ && chance(60)) {
      Attributes tail;
      tail.last = number(1, 4);
      summaries.shares = true;
      summaries.selection = builder_.index(Op::kWindow, {}, tail);
    }
    if (chance(70)) {
      Attributes value;
      value.value = number(-3, 8) * 0.5;
      Shape shape = {{Axis::kPage, kDynamic}};
      if (chance(40)) shape.push_back({Axis::kHead, builder_.graph.geometry.group});
      summaries.bias = builder_.add(Stage::kIndex, Op::kFill, {}, value, shape);
      if (chance(50)) {
        const NodeId place = builder_.index(Op::kPosition);
        const NodeId step = builder_.add(Stage::kIndex, Op::kConstant, {}, value);
        summaries.bias = builder_.index(Op::kMinimum, {summaries.bias, builder_.index(Op::kMul, {place, step})});
      }
    }
    if (!several_ && chance(35)) {
      summaries.group_pages = number(2, 5);
      if (chance(60)) summaries.opened = draw_one_selection();
    }
    builder_.graph.sources.push_back(summaries);
  }

  void draw_index() {
    values_.clear();
    draw_source(Stage::kIndex, Op::kQuery);
    if (chance(30)) draw_source(Stage::kIndex, Op::kKey);
    if (chance(20)) draw_source(Stage::kIndex, Op::kValue);
    draw_source(Stage::kIndex, Op::kConstant);
    if (chance(50)) draw_source(Stage::kIndex, Op::kFill);
    if (chance(50)) draw_source(Stage::kIndex, Op::kPosition);
    if (chance(50)) draw_source(Stage::kIndex, Op::kRandom);
    if (after_ || chance(60)) {
      State state{{}, {{Axis::kPage, kDynamic}}, 0, {}};
      if (chance(30)) state.shape.push_back({Axis::kHead, builder_.graph.geometry.group});
      if (chance(20))
        state.shape = {{Axis::kHead, builder_.graph.geometry.group}, {Axis::kDim, builder_.graph.geometry.head_dim}};
      if (chance(20)) state.shape = {{Axis::kPage, kDynamic}, {Axis::kToken, builder_.graph.geometry.page}};
      if (after_ && chance(20)) state.shape = mass_shape();
      if (evicts_ && state.shape == Shape{{Axis::kPage, kDynamic}}) state.shape = score_shape();
      if (evicts_ && has_axis(state.shape, Axis::kPage) && !has_axis(state.shape, Axis::kToken)) state.shape = mass_shape();
      // States of one shape, so that they can be saved from each other.
      const int states = number(1, 3);
      for (int i = 0; i < states; ++i) {
        state.name = fmt::format("state{}", i);
        state.initial = number(-2, 2) * 0.5;
        builder_.graph.states.push_back(state);
        draw_source(Stage::kIndex, Op::kLoad, state.name);
      }
    }
    if (keeps_summaries_) {
      const Shape of_pages = {{Axis::kPage, kDynamic}, {Axis::kDim, builder_.graph.geometry.head_dim}};
      for (const char* name : {kKeptKeys, kKeptValues})
        builder_.graph.states.push_back({name, of_pages, number(-1, 1) * 0.25, {}});
      draw_source(Stage::kIndex, Op::kLoad, kKeptKeys);
    }
    for (const Field& field : builder_.graph.fields) draw_source(Stage::kIndex, Op::kField, field.name);
    const int attempts = number(10, 120);
    for (int i = 0; i < attempts; ++i) draw_operator(Stage::kIndex);
  }

  /// A score [page B] made of some value with pages.
  NodeId draw_score() {
    NodeId score = kNoNode;
    while (score == kNoNode) {
      const NodeId value = any_value();
      if (has_axis(shape_of(value), Axis::kPage)) score = value;
    }
    score = reduced(score, 1);
    if (after_ && chance(80)) {
      const State& state = builder_.graph.states.front();
      const NodeId kept = builder_.index(Op::kLoad, {}, GraphBuilder::named(state.name));
      score = builder_.index(Op::kAdd, {score, reduced(kept, has_axis(state.shape, Axis::kPage) ? 1 : 0)});
    }
    return score;
  }

  /// A value without its last axes, so that `axes` are left.
  NodeId reduced(NodeId value, size_t axes) {
    while (shape_of(value).size() > axes) {
      constexpr Op kReductions[] = {Op::kMean, Op::kMax, Op::kMin, Op::kSum, Op::kL2Norm};
      value = builder_.index(one_of(kReductions), {value}, GraphBuilder::along(shape_of(value).back().axis));
    }
    return value;
  }

  Shape score_shape() const { return {{Axis::kPage, kDynamic}, {Axis::kToken, builder_.graph.geometry.page}}; }
  Shape mass_shape() const {
    const Geometry& geometry = builder_.graph.geometry;
    return {{Axis::kPage, kDynamic}, {Axis::kToken, geometry.page}, {Axis::kHead, geometry.group}};
  }

  /// The masses as a tensor of a state's shape.
  NodeId masses_of(const Shape& shape) {
    NodeId value = builder_.after(Op::kMass);
    for (const Axis axis : {Axis::kToken, Axis::kHead}) {
      if (!has_axis(shape, axis) && !(axis == Axis::kHead && !has_axis(shape, Axis::kPage))) {
        value = builder_.after(chance(70) ? Op::kSum : Op::kMax, {value}, GraphBuilder::along(axis));
      }
    }
    if (has_axis(shape, Axis::kPage)) return value;
    value = builder_.after(chance(50) ? Op::kSum : Op::kMax, {value}, GraphBuilder::along(Axis::kPage));  // [head]
    return builder_.after(Op::kMul, {value, builder_.after(Op::kQuery)});
  }

  void draw_after() {
    constexpr int kRows[] = {kToEnd, kToEnd, 0, 1, 5, 20};
    builder_.graph.mass_rows = one_of(kRows);
    if (evicts_ && builder_.graph.mass_rows == 0) builder_.graph.mass_rows = kToEnd;
    values_.clear();
    for (const Op op : {Op::kQuery, Op::kMass, Op::kConstant}) draw_source(Stage::kAfter, op);
    for (const Op op : {Op::kKey, Op::kValue, Op::kFill, Op::kPosition, Op::kRandom}) {
      if (chance(25)) draw_source(Stage::kAfter, op);
    }
    for (const State& state : builder_.graph.states) draw_source(Stage::kAfter, Op::kLoad, state.name);
    for (const Field& field : builder_.graph.fields) draw_source(Stage::kAfter, Op::kField, field.name);
    const int attempts = number(5, 60);
    for (int i = 0; i < attempts; ++i) draw_operator(Stage::kAfter);
    for (const State& state : builder_.graph.states) {
      const bool is_saved = std::any_of(builder_.graph.saves.begin(), builder_.graph.saves.end(), [&](NodeId save) {
        return builder_.graph.nodes[static_cast<size_t>(save)].attributes.field == state.name;
      });
      if (is_saved || is_kept_summary(state)) continue;
      std::vector<NodeId> fitting;
      for (const NodeId value : values_) {
        if (shape_of(value) == state.shape) fitting.push_back(value);
      }
      NodeId value = masses_of(state.shape);
      if (!fitting.empty() && chance(70)) {
        const NodeId other = fitting[static_cast<size_t>(number(0, static_cast<int>(fitting.size()) - 1))];
        value = builder_.after(chance(50) ? Op::kAdd : Op::kMaximum, {value, other});
      }
      const bool has_tail = keeps_summaries_ && has_axis(state.shape, Axis::kPage) && chance(50);
      builder_.save(state.name, value, Stage::kAfter, has_tail ? number(1, 5) : 0);
    }
    if (keeps_summaries_) draw_kept_summaries();
  }

  static bool is_kept_summary(const State& state) { return state.name == kKeptKeys || state.name == kKeptValues; }

  /// Keys and values of pages that are weighed by what their tokens were given, or are not; saved as they leave a tail, or
  /// always.
  void draw_kept_summaries() {
    const int tail = number(0, 5);
    for (const auto& [name, op] : {std::pair(kKeptKeys, Op::kKey), {kKeptValues, Op::kValue}}) {
      NodeId value = builder_.after(op);
      if (chance(60)) {
        const NodeId weight = builder_.after(Op::kSum, {builder_.after(Op::kMass)}, GraphBuilder::along(Axis::kHead));
        value = builder_.after(Op::kMul, {value, weight});
      }
      value = builder_.after(chance(50) ? Op::kSum : Op::kMean, {value}, GraphBuilder::along(Axis::kToken));
      builder_.save(name, value, Stage::kAfter, tail);
    }
  }

  void draw_eviction() {
    FlowGraph& graph = builder_.graph;
    NodeId score = masses_of(score_shape());
    std::vector<NodeId> fitting;
    for (const NodeId value : values_) {
      if (shape_of(value) == score_shape() && graph.nodes[static_cast<size_t>(value)].stage == Stage::kAfter)
        fitting.push_back(value);
    }
    if (!fitting.empty() && chance(60)) {
      const NodeId other = fitting[static_cast<size_t>(number(0, static_cast<int>(fitting.size()) - 1))];
      score = builder_.after(chance(50) ? Op::kAdd : Op::kMinimum, {score, other});
    }
    graph.states.push_back({"evict_score", score_shape(), 0, {}});
    builder_.save("evict_score", score, Stage::kAfter);
    Eviction eviction;
    eviction.score = "evict_score";
    eviction.budget = number(30, 90);
    eviction.first = number(0, 8);
    eviction.recent = number(1, 12);
    eviction.chunk = chance(30) ? 0 : number(1, eviction.budget - eviction.first);
    if (chance(20)) eviction.keep = Pattern::dilated(number(1, 4), number(2, 3));
    graph.eviction = std::move(eviction);
  }

  NodeId draw_one_selection() {
    Attributes attributes;
    attributes.k = number(0, 6);
    attributes.first = number(0, 2);
    attributes.last = number(1, 2);
    if (chance(30)) attributes.ratio = number(1, 10) * 0.1;
    if (tokens_ && chance(60)) return draw_tokens(attributes);
    if (tokens_) {
      constexpr double kShares[] = {0.1, 0.5, 0.9, 1.0};
      attributes.value = one_of(kShares);
      if (chance(30)) attributes.max_pages = attributes.first + attributes.last + number(0, 5);
      const NodeId score = draw_score();
      return builder_.index(
          Op::kTopP, {chance(60) ? builder_.index(Op::kSoftmax, {score}, GraphBuilder::along(Axis::kPage)) : score}, attributes);
    }
    const int kind = number(1, 10);
    if (kind == 1) return builder_.index(Op::kApproxTopK, {draw_score()}, attributes);
    return builder_.index(Op::kTopK, {draw_score()}, attributes);
  }

  /// By what the query makes of each key, or of some value of every token.
  NodeId draw_tokens(Attributes attributes) {
    const int page = builder_.graph.geometry.page;
    attributes.k = number(0, 5 * page);
    attributes.first = number(0, page);
    attributes.last = number(1, page);
    std::vector<NodeId> fitting;
    for (const NodeId value : values_) {
      if (shape_of(value) == score_shape()) fitting.push_back(value);
    }
    NodeId score =
        builder_.index(Op::kContract, {builder_.index(Op::kQuery), builder_.index(Op::kKey)}, GraphBuilder::along(Axis::kDim));
    score = builder_.index(chance(50) ? Op::kMax : Op::kSum, {score}, GraphBuilder::along(Axis::kHead));
    if (!fitting.empty() && chance(60)) {
      score = builder_.index(Op::kAdd, {score, fitting[static_cast<size_t>(number(0, static_cast<int>(fitting.size()) - 1))]});
    }
    return builder_.index(Op::kTopKTokens, {score}, attributes);
  }

  void draw_selection() {
    // Scores are drawn first: a selection has no value to compute with.
    for (const State& state : builder_.graph.states) {
      if (is_kept_summary(state)) continue;
      if (after_ && (&state == &builder_.graph.states.front() || chance(50))) continue;
      // A state's value as it was loaded, or what was computed last.
      const bool loaded = chance(40);
      std::vector<NodeId> fitting;
      for (const NodeId value : values_) {
        const bool is_load = builder_.graph.nodes[static_cast<size_t>(value)].op == Op::kLoad;
        if (shape_of(value) == state.shape && (is_load || !loaded)) fitting.push_back(value);
      }
      if (fitting.empty()) continue;
      builder_.save(state.name,
                    loaded ? fitting[static_cast<size_t>(number(0, static_cast<int>(fitting.size()) - 1))] : fitting.back());
    }
    NodeId selection = draw_one_selection();
    if (tokens_ && chance(40)) selection = builder_.index(Op::kUnion, {selection, draw_one_selection()});
    if (chance(15)) {
      Attributes window;
      window.first = number(0, 2);
      window.last = 1;
      selection = builder_.index(Op::kUnion, {selection, builder_.index(Op::kWindow, {}, window)});
    }
    builder_.graph.attend_to(selection);
    if (covers_) return draw_cover(selection);
    if (!evicts_ && chance(15)) builder_.graph.sources.front().beside = draw_pattern();
  }

  Pattern draw_pattern() {
    switch (number(0, 4)) {
      case 0:
        return Pattern::window(number(1, 300));
      case 1:
        return Pattern::sink(number(1, 40)) | Pattern::window(number(1, 100));
      case 2:
        return Pattern::dilated(number(1, 60), number(2, 9));
      case 3:
        return Pattern::strided(number(1, 30), number(2, 90));
      default:
        return ~Pattern::window(number(1, 200));
    }
  }

  std::mt19937_64 random_;
  GraphBuilder builder_;
  std::vector<NodeId> values_;
  static constexpr const char* kKeptKeys = "kept_keys";  // states
  static constexpr const char* kKeptValues = "kept_values";

  bool covers_ = false;
  bool after_ = false;
  bool evicts_ = false;
  bool tokens_ = false;
  bool keeps_summaries_ = false;
  bool several_ = false;  // entries of a page
};

}  // namespace

FlowGraph random_flow(uint64_t seed) { return Drawing(seed).run(); }
FlowGraph random_cover(uint64_t seed) { return Drawing(seed, true).run(); }
FlowGraph random_after(uint64_t seed) { return Drawing(seed, seed % 4 == 3, true).run(); }
FlowGraph random_kept_cover(uint64_t seed) { return Drawing(seed, true, true, false, false, true).run(); }
FlowGraph random_tokens(uint64_t seed) { return Drawing(seed, false, seed % 3 == 0, false, true).run(); }
FlowGraph random_eviction(uint64_t seed) { return Drawing(seed, false, true, true).run(); }

}  // namespace sluice::testing
