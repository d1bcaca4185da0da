#include "kernels/reference/oracle.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "kernels/reference/oracle_operators.h"
#include "kernels/reference/schedule.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/selections.h"

namespace sluice::oracle {

namespace {

constexpr double kPoison = std::numeric_limits<double>::quiet_NaN();

/// Tokens [first, first + page) of `source` [tokens, dim] as stored; those that do not exist are poison.
Tensor page_of(const FlowGraph& graph, std::span<const float> source, int first, int tokens) {
  const Geometry& geometry = graph.geometry;
  Tensor tensor{{{Axis::kToken, geometry.page}, {Axis::kDim, geometry.head_dim}}, {}};
  for (int token = first; token < first + geometry.page; ++token) {
    for (int d = 0; d < geometry.head_dim; ++d) {
      const bool exists = token < tokens;
      tensor.values.push_back({exists ? round_to(geometry.kv, source[size_t(token) * geometry.head_dim + d]) : kPoison, 0});
    }
  }
  return tensor;
}

/// A stored number may be that on the other side of a rounding boundary.
Bounded store(DataType type, Bounded x) {
  const double value = round_to(type, x.value);
  if (x.error == 0 || is_unknown(x)) return {value, x.error};
  const double above = round_to(type, x.value + x.error);
  const double below = round_to(type, x.value - x.error);
  const double error = std::max(std::fabs(above - value), std::fabs(below - value));
  return {value, std::isnan(error) && !std::isnan(value) ? kUnknown : std::isnan(value) ? 0 : error};
}

/// Independent of kernels/device/random.h, whose comment defines these numbers.
uint64_t finalise(uint64_t z) {
  z ^= z >> 30;
  z *= 0xbf58476d1ce4e5b9ULL;
  z ^= z >> 27;
  z *= 0x94d049bb133111ebULL;
  z ^= z >> 31;
  return z;
}

double uniform(const Row& row, int page) {
  uint64_t state = finalise(row.seed);
  state = finalise(state + 1);
  state = finalise(state + ((uint64_t(row.layer) << 32) + uint64_t(row.kv_head)));
  state = finalise(state + uint64_t(row.tokens));
  const uint64_t bits = finalise(state + uint64_t(page + 1) * 0x9e3779b97f4a7c15ULL) >> 40;
  return double(bits) / 16777216.0;
}

Tensor filled(Shape shape, double value) {
  int64_t count = 1;
  for (const Dimension& dimension : shape) count *= dimension.extent;
  return {std::move(shape), std::vector<Bounded>(size_t(count), Bounded{double(float(value)), 0})};
}

Shape concrete(Shape shape, int pages) {
  for (Dimension& dimension : shape) {
    if (dimension.axis == Axis::kPage) dimension.extent = pages;
  }
  return shape;
}

/// One page of a state.
Tensor state_of_page(const State& state, const States& states, int page) {
  Tensor tensor = filled(concrete(state.shape, 1), state.initial);
  const auto saved = states.find(state.name);
  if (saved == states.end()) return tensor;
  const auto& values = saved->second.values;
  const size_t first = std::min(values.size(), size_t(page) * tensor.values.size());
  std::copy_n(values.begin() + ptrdiff_t(first), std::min(tensor.values.size(), values.size() - first), tensor.values.begin());
  return tensor;
}

/// The same tensor with a page axis.
Tensor paged(Tensor tensor) {
  tensor.shape.insert(tensor.shape.begin(), {Axis::kPage, 1});
  return tensor;
}

/// A state for `pages` pages: what was saved, and the initial value where nothing was.
Tensor state_for(const FlowGraph& graph, const State& state, const States& states, int pages) {
  Tensor tensor = filled(concrete(state.shape, pages), state.initial);
  const auto saved = states.find(state.name);
  if (saved == states.end()) return tensor;
  const size_t known = std::min(tensor.values.size(), saved->second.values.size());
  std::copy_n(saved->second.values.begin(), known, tensor.values.begin());
  return tensor;
}

/// What is saved for tokens that do not exist yet is the initial value.
Tensor without_future(Tensor tensor, const State& state, const Tokens& tokens) {
  const bool paged = has_axis(tensor.shape, Axis::kPage);
  for_each_index(tensor.shape, [&](const Index& index, size_t at) {
    if (paged && !tokens.exists(tensor.shape, index)) tensor.values[at] = {double(float(state.initial)), 0};
  });
  return tensor;
}

std::vector<int32_t> others_of(const std::vector<int32_t>& selected, int pages) {
  std::vector<int32_t> others;
  for (int32_t page = 0; page < pages; ++page) {
    if (!std::binary_search(selected.begin(), selected.end(), page)) others.push_back(page);
  }
  return others;
}

/// Runs the index stage in the order of a Schedule.
class Evaluation {
 public:
  Evaluation(const FlowGraph& graph, const Row& row, States& states, const Pace& pace, const std::vector<NodeId>& roots)
      : graph_(graph),
        row_(row),
        states_(states),
        pace_(pace),
        schedule_(graph, roots),
        pages_(pages_of(graph, row.tokens)),
        values_(graph.nodes.size()),
        selections_(graph.nodes.size()) {
    fill_fields();
    for (const Schedule::Phase& phase : schedule_.phases) run(phase);
    for (size_t id = 0; id < graph.nodes.size(); ++id) {
      if (schedule_.live[id] && is_selection(graph.nodes[id].op)) select(NodeId(id));
    }
  }

  Result result() {
    save();
    Result result;
    result.pages = pages_;
    for (const NodeId id : scored_selections(graph_)) {
      const Node& node = graph_.nodes[size_t(id)];
      Scores& scores = result.scores.emplace_back(Scores{id, values_[size_t(node.inputs[0])].values, {}});
      if (node.op == Op::kThreshold) scores.bound = values_[size_t(node.inputs[1])].values[0];
    }
    for (const AttentionSource& source : graph_.sources) {
      const std::vector<int32_t>& selected = selections_[size_t(source.selection)];
      result.sources.push_back({source.others ? others_of(selected, pages_) : selected, {}});
      if (source.bias != kNoNode) result.sources.back().bias = values_[size_t(source.bias)];
    }
    if (graph_.sources.empty()) {
      result.selected.resize(size_t(pages_));
      std::iota(result.selected.begin(), result.selected.end(), 0);
    } else {
      result.selected = result.sources.front().pages;
    }
    return result;
  }

  NodeValue value(NodeId id) { return {std::move(values_[size_t(id)]), std::move(selections_[size_t(id)])}; }

 private:
  int tokens_in(int page) const { return std::min(graph_.geometry.page, row_.tokens - page * graph_.geometry.page); }
  Tokens whole_row() const { return {graph_.geometry.page, pages_, tokens_in(pages_ - 1), 0, pages_}; }
  Tokens one_page(int page) const { return {graph_.geometry.page, 1, tokens_in(page), page, pages_}; }

  void fill_fields() {
    const bool reads = std::any_of(schedule_.phases.begin(), schedule_.phases.end(), [&](const Schedule::Phase& phase) {
      return std::any_of(phase.pages.begin(), phase.pages.end(),
                         [&](NodeId id) { return graph_.nodes[size_t(id)].op == Op::kField; });
    });
    for (int page = 0; reads && page < pages_; ++page) {
      if (pace_) pace_();
      const size_t skip = size_t(page) * graph_.geometry.page * graph_.geometry.head_dim;
      fields_.push_back(cached_fields(graph_, row_.keys.subspan(skip), row_.values.subspan(skip), tokens_in(page)));
    }
  }

  void run(const Schedule::Phase& phase) {
    for (const NodeId id : phase.once) values_[size_t(id)] = value_once(id);
    for (const NodeId id : phase.pages) {
      if (schedule_.stored[size_t(id)]) values_[size_t(id)] = {concrete(graph_.nodes[size_t(id)].shape, pages_), {}};
    }
    of_page_.assign(phase.pages.empty() ? 0 : graph_.nodes.size(), {});
    for (int page = 0; page < pages_ && !phase.pages.empty(); ++page) run_page(phase, page);
    of_page_.clear();
    for (const NodeId id : phase.rows) values_[size_t(id)] = value_of_row(id);
    for (const NodeId id : phase.last_read) values_[size_t(id)] = {};
  }

  void run_page(const Schedule::Phase& phase, int page) {
    for (const NodeId id : phase.pages) {
      if (pace_) pace_();
      Tensor& value = of_page_[size_t(id)];
      value = value_of_page(id, page);
      if (!schedule_.stored[size_t(id)]) continue;
      std::vector<Bounded>& all = values_[size_t(id)].values;
      all.insert(all.end(), value.values.begin(), value.values.end());
    }
  }

  Tensor value_once(NodeId id) const {
    if (pace_) pace_();
    const Node& node = graph_.nodes[size_t(id)];
    Tensor out;
    switch (node.op) {
      case Op::kQuery:
        out.shape = {{Axis::kHead, graph_.geometry.group}, {Axis::kDim, graph_.geometry.head_dim}};
        for (const float x : row_.query) out.values.push_back({x, 0});
        return out;
      case Op::kFill:
        return filled(node.shape, node.attributes.value);
      case Op::kLoad:
        return state_for(graph_, *graph_.find_state(node.attributes.field), states_, pages_);
      default:
        return value_of_row(id);
    }
  }

  /// From operands that are there for the whole row.
  Tensor value_of_row(NodeId id) const {
    const Node& node = graph_.nodes[size_t(id)];
    std::vector<const Tensor*> inputs;
    for (const NodeId input : node.inputs) inputs.push_back(&values_[size_t(input)]);
    return apply(node, concrete(node.shape, pages_), inputs, whole_row(), pace_);
  }

  Tensor value_of_page(NodeId id, int page) {
    const Node& node = graph_.nodes[size_t(id)];
    switch (node.op) {
      case Op::kKey:
        return paged(page_of(graph_, row_.keys, page * graph_.geometry.page, row_.tokens));
      case Op::kValue:
        return paged(page_of(graph_, row_.values, page * graph_.geometry.page, row_.tokens));
      case Op::kField:
        for (size_t f = 0; f < graph_.fields.size(); ++f) {
          if (graph_.fields[f].name == node.attributes.field) return paged(fields_[size_t(page)][f]);
        }
        return {};
      case Op::kFill:
        return filled(concrete(node.shape, 1), node.attributes.value);
      case Op::kPosition:
        return {{{Axis::kPage, 1}}, {{double(page), 0}}};
      case Op::kRandom:
        return {{{Axis::kPage, 1}}, {{uniform(row_, page), 0}}};
      case Op::kLoad:
        return state_of_page(*graph_.find_state(node.attributes.field), states_, page);
      default: {
        std::vector<Tensor> parts(node.inputs.size());
        std::vector<const Tensor*> inputs;
        for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(operand(node.inputs[i], page, parts[i]));
        return apply(node, concrete(node.shape, 1), inputs, one_page(page), pace_);
      }
    }
  }

  /// What a page-local node reads of `id`; `part` holds it where it has to be cut out of the whole row.
  const Tensor* operand(NodeId id, int page, Tensor& part) const {
    const Tensor& here = of_page_[size_t(id)];
    if (!here.values.empty()) return &here;
    const Tensor& all = values_[size_t(id)];
    if (!has_axis(all.shape, Axis::kPage)) return &all;
    const auto elements = ptrdiff_t(elements_per_page(graph_.nodes[size_t(id)].shape));
    const auto begin = all.values.begin() + page * elements;
    part = {concrete(graph_.nodes[size_t(id)].shape, 1), {begin, begin + elements}};
    return &part;
  }

  void select(NodeId id) {
    const Node& node = graph_.nodes[size_t(id)];
    const Attributes& a = node.attributes;
    std::vector<int32_t>& pages = selections_[size_t(id)];
    switch (node.op) {
      case Op::kTopK:
      case Op::kApproxTopK:
        pages = top_k(scores_of(node), a);
        return;
      case Op::kThreshold:
        pages = threshold(scores_of(node), values_[size_t(node.inputs[1])].values[0].value, a);
        return;
      case Op::kWindow:
        pages = window(pages_, a);
        return;
      default: {
        const auto& left = selections_[size_t(node.inputs[0])];
        const auto& right = selections_[size_t(node.inputs[1])];
        std::set_union(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(pages));
      }
    }
  }

  std::vector<double> scores_of(const Node& node) const {
    std::vector<double> scores;
    for (const Bounded& score : values_[size_t(node.inputs[0])].values) scores.push_back(score.value);
    return scores;
  }

  /// Every load has seen the states of the step before by now.
  void save() {
    States saved;
    for (const NodeId id : graph_.saves) {
      const Node& node = graph_.nodes[size_t(id)];
      saved[node.attributes.field] =
          without_future(values_[size_t(node.inputs[0])], *graph_.find_state(node.attributes.field), whole_row());
    }
    for (auto& [name, tensor] : saved) states_[name] = std::move(tensor);
  }

  const FlowGraph& graph_;
  const Row& row_;
  States& states_;
  const Pace& pace_;
  Schedule schedule_;
  int pages_;
  std::vector<Tensor> values_;               // by node: without page axis, or of all pages
  std::vector<Tensor> of_page_;              // by node: of the page at hand; empty between phases
  std::vector<std::vector<Tensor>> fields_;  // by page and number
  std::vector<std::vector<int32_t>> selections_;
};

}  // namespace

int pages_of(const FlowGraph& graph, int tokens) { return (tokens + graph.geometry.page - 1) / graph.geometry.page; }

std::vector<Tensor> cached_fields(const FlowGraph& graph, std::span<const float> keys, std::span<const float> values,
                                  int tokens) {
  const Tokens held{graph.geometry.page, 1, tokens};
  std::vector<Tensor> tensors(graph.nodes.size());
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.stage != Stage::kCache) continue;
    if (node.op == Op::kKey || node.op == Op::kValue) {
      tensors[id] = page_of(graph, node.op == Op::kKey ? keys : values, 0, tokens);
    } else if (node.op == Op::kFill || node.op == Op::kConstant) {
      tensors[id] = filled(node.shape, node.attributes.value);
    } else {
      std::vector<const Tensor*> inputs;
      for (const NodeId input : node.inputs) inputs.push_back(&tensors[input]);
      tensors[id] = apply(node, node.shape, inputs, held);
    }
  }
  std::vector<Tensor> fields;
  for (const Field& field : graph.fields) {
    fields.push_back(tensors[field.node]);
    for (Bounded& x : fields.back().values) x = store(field.type, x);
  }
  return fields;
}

Result run(const FlowGraph& graph, const Row& row, States& states, const Pace& pace) {
  return Evaluation(graph, row, states, pace, roots_of(graph)).result();
}

NodeValue value_of(const FlowGraph& graph, NodeId node, const Row& row, States& states, const Pace& pace) {
  return Evaluation(graph, row, states, pace, {node}).value(node);
}

double round_to(DataType type, double x) {
  if (type == DataType::kF32) return double(float(x));
  if (std::isnan(x) || x == 0) return x;
  const int mantissa = type == DataType::kBF16 ? 7 : type == DataType::kE4M3 ? 3 : 2;
  const int least_exponent = type == DataType::kBF16 ? -126 : type == DataType::kE4M3 ? -6 : -14;
  const double largest = type == DataType::kBF16 ? 0x1.fep127 : type == DataType::kE4M3 ? 448 : 57344;
  const double infinite = type == DataType::kBF16 ? HUGE_VAL : largest;
  if (std::isinf(x)) return std::copysign(infinite, x);
  const int exponent = std::max(std::ilogb(x), least_exponent);
  const double result = std::ldexp(std::nearbyint(std::ldexp(x, mantissa - exponent)), exponent - mantissa);
  return std::fabs(result) > largest ? std::copysign(infinite, x) : result;
}

std::vector<float> round_all_to(DataType type, std::span<const float> numbers) {
  std::vector<float> rounded;
  for (const float number : numbers) rounded.push_back(float(round_to(type, number)));
  return rounded;
}

Result with_selected(const FlowGraph& graph, Result expected, std::span<const int32_t> selected) {
  expected.selected.assign(selected.begin(), selected.end());
  for (size_t i = 0; i < graph.sources.size(); ++i) {
    const AttentionSource& source = graph.sources[i];
    if (source.selection != graph.selection()) continue;
    expected.sources[i].pages = source.others ? others_of(expected.selected, expected.pages) : expected.selected;
  }
  return expected;
}

}  // namespace sluice::oracle
