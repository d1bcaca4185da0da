#include "scripting/passes/canonical.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "scripting/graph/recompute.h"
#include "scripting/passes/passes.h"
#include "scripting/passes/rewrite.h"

namespace sluice {
namespace {

constexpr const char* kName = "flow";

/// Walks a graph from what attention reads back to its sources. The order in which it comes by nodes, fields and states follows
/// from what they are for, whatever the order of statements was.
class Walk {
 public:
  explicit Walk(const FlowGraph& graph) : graph_(graph), is_seen_(graph.nodes.size(), false) {
    for (const AttentionSource& source : graph.sources) {
      for (const NodeId root : {source.selection, source.bias, source.opened}) visit(root);
      meet(source.keys);
      meet(source.values);
    }
    if (graph.eviction) meet(graph.eviction->score);
    for (size_t i = 0; i < met_.size(); ++i) visit_makers(std::string(met_[i]));
  }

  /// Nodes, operands first.
  const std::vector<NodeId>& order() const { return order_; }
  /// Of fields and states.
  const std::vector<std::string>& names() const { return met_; }

 private:
  void visit(NodeId id) {
    if (id == kNoNode || is_seen_[static_cast<size_t>(id)]) return;
    is_seen_[static_cast<size_t>(id)] = true;
    const Node& node = graph_.nodes[static_cast<size_t>(id)];
    for (const NodeId input : node.inputs) visit(input);
    if (node.op == Op::kField || node.op == Op::kLoad) meet(node.attributes.field);
    order_.push_back(id);
  }

  void meet(const std::string& name) {
    const bool has_maker = graph_.find_field(name) != nullptr || graph_.find_state(name) != nullptr;
    if (has_maker && std::find(met_.begin(), met_.end(), name) == met_.end()) met_.push_back(name);
  }

  /// What gives a field or a state its values.
  void visit_makers(const std::string& name) {
    if (const Field* field = graph_.find_field(name)) visit(field->node);
    for (const NodeId save : graph_.saves) {
      if (graph_.nodes[static_cast<size_t>(save)].attributes.field == name) visit(save);
    }
  }

  const FlowGraph& graph_;
  std::vector<bool> is_seen_;
  std::vector<NodeId> order_;
  std::vector<std::string> met_;
};

/// New names of fields and states, in the order in which they are met.
class Renaming {
 public:
  Renaming(const FlowGraph& graph, const std::vector<std::string>& met) {
    for (const std::string& name : met) {
      const bool is_field = graph.find_field(name) != nullptr;
      const size_t number = names_.size();
      names_.emplace(name, fmt::format("{}{}", is_field ? "field" : "state", number));
      places_.emplace(names_.at(name), number);
    }
  }

  void apply(FlowGraph& graph) const {
    for (Node& node : graph.nodes) rename(node.attributes.field);
    for (AttentionSource& source : graph.sources) {
      rename(source.keys);
      rename(source.values);
    }
    if (graph.eviction) rename(graph.eviction->score);
    for (Field& field : graph.fields) rename(field.name);
    for (State& state : graph.states) rename(state.name);
    sort(graph.fields);
    sort(graph.states);
  }

 private:
  void rename(std::string& name) const {
    const auto found = names_.find(name);
    if (found != names_.end()) name = found->second;
  }

  template <typename Item>
  void sort(std::vector<Item>& items) const {
    std::ranges::sort(items, {}, [&](const Item& item) { return places_.at(item.name); });
  }

  std::map<std::string, std::string> names_;
  std::map<std::string, size_t> places_;  // by new name
};

/// Says of each layer what it has, and of no other.
void name_all_layers(FlowGraph& graph, int layers) {
  LayerChoice choice{false, {}};
  LayerPatterns patterns;
  patterns.dense_prefill = graph.patterns.dense_prefill;
  for (int layer = 0; layer < layers; ++layer) {
    if (!graph.layers.is_sparse(layer, layers)) continue;
    choice.sparse[layer] = true;
    const int place = graph.patterns.empty() ? LayerPatterns::kNone : graph.patterns.place_of(layer, layers);
    if (place != LayerPatterns::kNone) patterns.layers[layer] = patterns.add(graph.patterns.patterns[static_cast<size_t>(place)]);
  }
  graph.layers = std::move(choice);
  graph.patterns = std::move(patterns);
}

void forget_places(FlowGraph& graph) {
  graph.where = {};
  graph.patterns.where = {};
  for (Node& node : graph.nodes) node.where = {};
  for (Field& field : graph.fields) field.where = {};
  for (State& state : graph.states) state.where = {};
  if (graph.eviction) graph.eviction->where = {};
}

/// Programs in the order of their first layers, whichever was written first.
void sort_programs(FlowGraph& graph) {
  std::vector<FlowGraph> programs = std::exchange(graph.variants, {});
  std::shared_ptr<const Recompute> rule = std::exchange(graph.recompute, nullptr);
  programs.insert(programs.begin(), std::move(graph));
  std::ranges::stable_sort(programs, {}, [](const FlowGraph& program) {
    return program.layers.sparse.empty() ? INT_MAX : program.layers.sparse.begin()->first;
  });
  graph = std::move(programs.front());
  graph.recompute = std::move(rule);
  graph.variants.assign(std::make_move_iterator(programs.begin() + 1), std::make_move_iterator(programs.end()));
  for (size_t i = 0; i < graph.variants.size(); ++i) graph.variants[i].variant = fmt::format("variant{}", i + 1);
}

/// States of a rule for copies are facts: their names say which, and nobody saves them.
Recompute canonical_form(const Recompute& rule) {
  Recompute form = rule;
  form.where = {};
  if (form.kind != Recompute::Kind::kSelected) return form;
  passes::remove_dead(form.graph);
  passes::merge_common(form.graph);
  passes::remove_dead(form.graph);
  passes::reorder(form.graph, Walk(form.graph).order());
  std::ranges::sort(form.graph.states, {}, &State::name);
  form.graph.name = kName;
  forget_places(form.graph);
  return form;
}

}  // namespace

FlowGraph canonical_form(FlowGraph graph, int layers, bool has_methods) {
  if (!has_methods) {
    for (Node& node : graph.nodes) node.attributes.method = TopKMethod::kAuto;
  }
  passes::remove_dead(graph);
  for (size_t before = graph.nodes.size() + 1; graph.nodes.size() < before;) {
    before = graph.nodes.size();
    for (const passes::Pass& pass : passes::kShrinking) pass.run(graph);
  }
  const Walk walk(graph);
  const Renaming renaming(graph, walk.names());
  passes::reorder(graph, walk.order());
  passes::sort_stages(graph);
  renaming.apply(graph);
  name_all_layers(graph, layers);
  forget_places(graph);
  for (FlowGraph& variant : graph.variants) variant = canonical_form(std::move(variant), layers, has_methods);
  graph.name = kName;
  sort_programs(graph);
  graph.variant = graph.variants.empty() ? "" : "variant0";
  if (graph.recompute != nullptr) graph.recompute = std::make_shared<const Recompute>(canonical_form(*graph.recompute));
  return graph;
}

}  // namespace sluice
