#include "kernels/reference/oracle.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "kernels/reference/oracle_operators.h"
#include "kernels/reference/schedule.h"
#include "kernels/reference/states.h"
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
  state = finalise(state + uint64_t(row.step > 0 ? row.step : row.tokens));
  const uint64_t bits = finalise(state + uint64_t(page + 1) * 0x9e3779b97f4a7c15ULL) >> 40;
  return double(bits) / 16777216.0;
}

/// The same tensor with a page axis.
Tensor paged(Tensor tensor) {
  tensor.shape.insert(tensor.shape.begin(), {Axis::kPage, 1});
  return tensor;
}

std::vector<int32_t> others_of(const std::vector<int32_t>& selected, int pages) {
  std::vector<int32_t> others;
  for (int32_t page = 0; page < pages; ++page) {
    if (!std::binary_search(selected.begin(), selected.end(), page)) others.push_back(page);
  }
  return others;
}

/// Of `numbers` [rows, dim] of a prompt, those of the pages that its after stage is shown.
std::vector<float> of_pages_shown(const FlowGraph& graph, const Prompt& prompt, std::span<const float> numbers) {
  if (prompt.pages_shown.empty()) return {numbers.begin(), numbers.end()};
  const size_t of_page = size_t(graph.geometry.page) * graph.geometry.head_dim;
  std::vector<float> shown;
  for (const int32_t page : prompt.pages_shown) {
    const std::span<const float> rest = numbers.subspan(size_t(page) * of_page);
    const std::span<const float> part = rest.first(std::min(of_page, rest.size()));
    shown.insert(shown.end(), part.begin(), part.end());
  }
  return shown;
}

/// Runs the index stage, or the after stage, which reads `masses`, in the order of a Schedule.
class Evaluation {
 public:
  Evaluation(const FlowGraph& graph, const Row& row, States& states, const Pace& pace, const std::vector<NodeId>& roots,
             const Tensor* masses = nullptr)
      : graph_(graph),
        row_(row),
        states_(states),
        pace_(pace),
        masses_(masses),
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

  /// Of the index stage.
  Result result() {
    Result result;
    result.saved = saved(Stage::kIndex);
    result.pages = pages_;
    result.tokens = row_.tokens;
    for (const NodeId id : scored_selections(graph_)) {
      const Node& node = graph_.nodes[size_t(id)];
      Scores& scores = result.scores.emplace_back(Scores{id, values_[size_t(node.inputs[0])].values, {}});
      if (node.op == Op::kTopKTokens) scores.values.resize(size_t(row_.tokens));
      if (node.op == Op::kThreshold) scores.bound = values_[size_t(node.inputs[1])].values[0];
    }
    for (const AttentionSource& source : graph_.sources) {
      const std::vector<int32_t>& selected = selections_[size_t(source.selection)];
      Attended& attended = result.sources.emplace_back();
      const bool of_tokens = is_of_tokens(graph_, source.selection);
      (of_tokens ? attended.tokens : attended.pages) = source.others ? others_of(selected, pages_) : selected;
      if (source.opened != kNoNode) attended.opened = selections_[size_t(source.opened)];
      if (source.bias != kNoNode) attended.bias = values_[size_t(source.bias)];
      if (const State* state = graph_.find_state(source.keys)) attended.keys = state_for(*state, states_, pages_);
      if (const State* state = graph_.find_state(source.values)) attended.values = state_for(*state, states_, pages_);
    }
    if (graph_.sources.empty()) {
      result.selected.resize(size_t(pages_));
      std::iota(result.selected.begin(), result.selected.end(), 0);
    } else {
      result.selected = selections_[size_t(graph_.selection())];
    }
    return result;
  }

  /// What a stage saves. Loads have seen the states of the step before.
  States saved(Stage stage) const {
    States saved;
    for (const NodeId id : graph_.saves) {
      const Node& node = graph_.nodes[size_t(id)];
      if (node.stage != stage) continue;
      const State& state = *graph_.find_state(node.attributes.field);
      const Tensor& value = values_[size_t(node.inputs[0])];
      saved[state.name] = node.attributes.last > 0 ? with_leaving_pages(state, states_, value, pages_behind_tail(node))
                                                   : without_future(value, state, whole_row());
    }
    return saved;
  }

  NodeValue value(NodeId id) { return {std::move(values_[size_t(id)]), std::move(selections_[size_t(id)])}; }

 private:
  int pages_behind_tail(const Node& save) const {
    const int next = pages_of(graph_, row_.tokens + 1);
    return std::max(0, next - save.attributes.last);
  }
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
        return state_for(*graph_.find_state(node.attributes.field), states_, pages_);
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
      case Op::kMass:
        return page_of_masses(page);
      default: {
        std::vector<Tensor> parts(node.inputs.size());
        std::vector<const Tensor*> inputs;
        for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(operand(node.inputs[i], page, parts[i]));
        return apply(node, concrete(node.shape, 1), inputs, one_page(page), pace_);
      }
    }
  }

  Tensor page_of_masses(int page) const {
    Tensor part{masses_->shape, {}};
    part.shape.front().extent = 1;
    const auto numbers = ptrdiff_t(graph_.geometry.page) * graph_.geometry.group;
    const auto begin = masses_->values.begin() + page * numbers;
    part.values.assign(begin, begin + numbers);
    return part;
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
      case Op::kTopP:
        pages = top_p(scores_of(node), a.value, a);
        return;
      case Op::kTopKTokens: {
        std::vector<double> scores = scores_of(node);
        scores.resize(size_t(row_.tokens));
        pages = top_k(scores, a);
        return;
      }
      case Op::kWindow:
        pages = window(pages_, a);
        return;
      default: {
        const auto operand = [&](size_t input) {
          const NodeId of = node.inputs[input];
          const std::vector<int32_t>& own = selections_[size_t(of)];
          const bool is_raised = is_of_tokens(graph_, id) && !is_of_tokens(graph_, of);
          return is_raised ? tokens_of_pages(graph_, own, row_.tokens) : own;
        };
        const std::vector<int32_t> left = operand(0);
        const std::vector<int32_t> right = operand(1);
        std::set_union(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(pages));
      }
    }
  }

  std::vector<double> scores_of(const Node& node) const {
    std::vector<double> scores;
    for (const Bounded& score : values_[size_t(node.inputs[0])].values) scores.push_back(score.value);
    return scores;
  }

  const FlowGraph& graph_;
  const Row& row_;
  States& states_;
  const Pace& pace_;
  const Tensor* masses_;
  Schedule schedule_;
  int pages_;
  std::vector<Tensor> values_;               // by node: without page axis, or of all pages
  std::vector<Tensor> of_page_;              // by node: of the page at hand; empty between phases
  std::vector<std::vector<Tensor>> fields_;  // by page and number
  std::vector<std::vector<int32_t>> selections_;
};

}  // namespace

std::vector<int32_t> tokens_of_pages(const FlowGraph& graph, std::span<const int32_t> pages, int tokens) {
  std::vector<int32_t> all;
  for (const int32_t page : pages) {
    for (int32_t token = page * graph.geometry.page; token < std::min(tokens, (page + 1) * graph.geometry.page); ++token)
      all.push_back(token);
  }
  return all;
}

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
  Result result = Evaluation(graph, row, states, pace, roots_of(graph, Stage::kIndex)).result();
  if (!graph.saves_in(Stage::kAfter)) keep(std::exchange(result.saved, {}), states);
  return result;
}

void end_step(const FlowGraph& graph, const Row& row, const Result& result, double scale, States& states, const Pace& pace) {
  if (!graph.saves_in(Stage::kAfter)) return;
  const Tensor given = masses(graph, row, result, scale);
  States saved = Evaluation(graph, row, states, pace, roots_of(graph, Stage::kAfter), &given).saved(Stage::kAfter);
  keep(result.saved, states);
  keep(saved, states);
}

void end_prompt(const FlowGraph& graph, const Prompt& prompt, double scale, States& states, const Pace& pace) {
  if (!graph.saves_in(Stage::kAfter) || graph.mass_rows == 0) return;
  const Tensor given = masses(graph, prompt, scale);
  const size_t of_row = size_t(graph.geometry.group) * graph.geometry.head_dim;
  const std::vector<float> keys = of_pages_shown(graph, prompt, prompt.keys);
  const std::vector<float> values = of_pages_shown(graph, prompt, prompt.values);
  const Row row{prompt.queries.last(of_row),
                keys,
                values,
                int(keys.size()) / graph.geometry.head_dim,
                prompt.seed,
                prompt.layer,
                prompt.kv_head,
                {},
                {},
                prompt.step};
  keep(Evaluation(graph, row, states, pace, roots_of(graph, Stage::kAfter), &given).saved(Stage::kAfter), states);
}

NodeValue value_of(const FlowGraph& graph, NodeId node, const Row& row, States& states, const Pace& pace, const Tensor* masses) {
  return Evaluation(graph, row, states, pace, {node}, masses).value(node);
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
    if (is_of_tokens(graph, source.selection)) {
      expected.sources[i].tokens = expected.selected;
      continue;
    }
    expected.sources[i].pages = source.others ? others_of(expected.selected, expected.pages) : expected.selected;
  }
  return expected;
}

}  // namespace sluice::oracle
