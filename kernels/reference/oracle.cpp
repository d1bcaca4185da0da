#include "kernels/reference/oracle.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "kernels/reference/oracle_operators.h"

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

/// Stacks one tensor a page into [page, ...].
Tensor stack(const std::vector<Tensor>& pages) {
  Tensor all{pages[0].shape, {}};
  all.shape.insert(all.shape.begin(), {Axis::kPage, static_cast<int>(pages.size())});
  for (const Tensor& page : pages) all.values.insert(all.values.end(), page.values.begin(), page.values.end());
  return all;
}

/// Independent of kernels/random.h, whose comment defines these numbers.
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

class Evaluation {
 public:
  Evaluation(const FlowGraph& graph, const Row& row, States& states, const Pace& pace)
      : graph_(graph), row_(row), states_(states), pace_(pace), pages_(pages_of(graph, row.tokens)) {
    tokens_ = {graph.geometry.page, pages_, row.tokens - (pages_ - 1) * graph.geometry.page};
    tensors_.resize(graph.nodes.size());
    selections_.resize(graph.nodes.size());
  }

  Result run() {
    fill_cache();
    for (size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (graph_.nodes[id].stage == Stage::kIndex) evaluate(NodeId(id));
    }
    States saved;
    for (const NodeId save : graph_.saves) {
      const Node& node = graph_.nodes[save];
      saved[node.attributes.field] = without_future(tensors_[node.inputs[0]], *graph_.find_state(node.attributes.field), tokens_);
    }
    for (auto& [name, tensor] : saved) states_[name] = std::move(tensor);
    if (graph_.selection == kNoNode) {
      result_.selected.resize(pages_);
      std::iota(result_.selected.begin(), result_.selected.end(), 0);
    } else {
      result_.selected = selections_[graph_.selection];
    }
    return std::move(result_);
  }

  NodeValue value_of(NodeId wanted) {
    fill_cache();
    for (NodeId id = 0; id <= wanted; ++id) {
      if (graph_.nodes[id].stage == Stage::kIndex) evaluate(id);
    }
    return {std::move(tensors_[wanted]), std::move(selections_[wanted])};
  }

 private:
  void fill_cache() {
    const int page = graph_.geometry.page;
    std::vector<std::vector<Tensor>> fields(graph_.fields.size());
    std::vector<Tensor> keys;
    std::vector<Tensor> values;
    for (int p = 0; p < pages_; ++p) {
      if (pace_) pace_();
      const size_t skip = size_t(p) * page * graph_.geometry.head_dim;
      const int held = std::min(page, row_.tokens - p * page);
      const std::vector<Tensor> cached = cached_fields(graph_, row_.keys.subspan(skip), row_.values.subspan(skip), held);
      for (size_t f = 0; f < fields.size(); ++f) fields[f].push_back(cached[f]);
      keys.push_back(page_of(graph_, row_.keys, p * page, row_.tokens));
      values.push_back(page_of(graph_, row_.values, p * page, row_.tokens));
    }
    for (const auto& field : fields) fields_.push_back(stack(field));
    keys_ = stack(keys);
    values_ = stack(values);
  }

  std::vector<double> score_of(const Node& node) {
    result_.scores = tensors_[node.inputs[0]].values;
    std::vector<double> scores;
    for (const Bounded& score : result_.scores) scores.push_back(score.value);
    return scores;
  }

  void evaluate(NodeId id) {
    if (pace_) pace_();
    const Node& node = graph_.nodes[id];
    const Attributes& a = node.attributes;
    Tensor& out = tensors_[id];
    switch (node.op) {
      case Op::kQuery:
        out.shape = {{Axis::kHead, graph_.geometry.group}, {Axis::kDim, graph_.geometry.head_dim}};
        for (const float x : row_.query) out.values.push_back({x, 0});
        return;
      case Op::kKey:
        out = keys_;
        return;
      case Op::kValue:
        out = values_;
        return;
      case Op::kField:
        for (size_t f = 0; f < fields_.size(); ++f) {
          if (graph_.fields[f].name == a.field) out = fields_[f];
        }
        return;
      case Op::kFill:
        out = filled(concrete(node.shape, pages_), a.value);
        return;
      case Op::kPosition:
      case Op::kRandom:
        out.shape = {{Axis::kPage, pages_}};
        for (int p = 0; p < pages_; ++p) out.values.push_back({node.op == Op::kPosition ? p : uniform(row_, p), 0});
        return;
      case Op::kLoad:
        out = state_for(graph_, *graph_.find_state(a.field), states_, pages_);
        return;
      case Op::kSave:
        return;
      case Op::kTopK:
      case Op::kApproxTopK:
        selections_[id] = top_k(score_of(node), a);
        return;
      case Op::kThreshold:
        result_.bound = tensors_[node.inputs[1]].values[0];
        selections_[id] = threshold(score_of(node), result_.bound->value, a);
        return;
      case Op::kWindow:
        for (int p = 0; p < pages_; ++p) {
          if (p < a.first || p >= pages_ - a.last) selections_[id].push_back(p);
        }
        return;
      case Op::kUnion:
        std::set_union(selections_[node.inputs[0]].begin(), selections_[node.inputs[0]].end(),
                       selections_[node.inputs[1]].begin(), selections_[node.inputs[1]].end(),
                       std::back_inserter(selections_[id]));
        return;
      default: {
        std::vector<const Tensor*> inputs;
        for (const NodeId input : node.inputs) inputs.push_back(&tensors_[input]);
        out = apply(node, concrete(node.shape, pages_), inputs, tokens_, pace_);
      }
    }
  }

  const FlowGraph& graph_;
  const Row& row_;
  States& states_;
  const Pace& pace_;
  int pages_;
  Tokens tokens_;
  std::vector<Tensor> fields_;
  Tensor keys_;
  Tensor values_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<int32_t>> selections_;
  Result result_;
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
  return Evaluation(graph, row, states, pace).run();
}

NodeValue value_of(const FlowGraph& graph, NodeId node, const Row& row, States& states, const Pace& pace) {
  return Evaluation(graph, row, states, pace).value_of(node);
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

std::vector<double> attention(std::span<const float> query, std::span<const float> keys, std::span<const float> values,
                              int tokens, int dim, int page, std::span<const int32_t> pages, double scale) {
  std::vector<double> output(query.size());
  for (size_t head = 0; head < query.size() / dim; ++head) {
    std::vector<int> seen;
    std::vector<double> logits;
    for (const int32_t p : pages) {
      for (int token = p * page; token < std::min(tokens, (p + 1) * page); ++token) {
        double product = 0;
        for (int d = 0; d < dim; ++d) product += double(query[head * dim + d]) * keys[size_t(token) * dim + d];
        seen.push_back(token);
        logits.push_back(scale * product);
      }
    }
    const double largest = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (const double logit : logits) total += std::exp(logit - largest);
    for (size_t i = 0; i < seen.size(); ++i) {
      const double weight = std::exp(logits[i] - largest) / total;
      for (int d = 0; d < dim; ++d) output[head * dim + d] += weight * values[size_t(seen[i]) * dim + d];
    }
  }
  return output;
}

}  // namespace sluice::oracle
