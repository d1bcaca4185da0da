#include "scripting/graph/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "scripting/graph/text.h"
#include "scripting/graph/verify.h"
#include "scripting/graph/verify_parts.h"

namespace sluice {
namespace {

constexpr std::array kFacts = {
    CopyFactInfo{CopyFact::kMass, "mass", true, true},
    CopyFactInfo{CopyFact::kKeyChange, "key_change", true, true},
    CopyFactInfo{CopyFact::kValueChange, "value_change", true, true},
    CopyFactInfo{CopyFact::kPosition, "position", false, false},
    CopyFactInfo{CopyFact::kMoved, "moved", false, false},
    CopyFactInfo{CopyFact::kFromEdge, "from_edge", false, false},
    CopyFactInfo{CopyFact::kToEdge, "to_edge", false, false},
    CopyFactInfo{CopyFact::kFromNew, "from_new", false, false},
    CopyFactInfo{CopyFact::kToNew, "to_new", false, false},
    CopyFactInfo{CopyFact::kLooks, "looks", false, false},
};

void verify_work(const Recompute& rule) {
  int64_t work = 0;
  for (const Node& node : rule.graph.nodes) work += work_of(rule.graph, node);
  if (work <= kMostRuleWork) return;
  verifying::refuse(rule.where,
                    fmt::format("flow.recompute computes {} numbers a block, at most {} are allowed", work, kMostRuleWork),
                    "reduce \"head\" and \"token\" earlier");
}

}  // namespace

std::span<const CopyFactInfo> copy_facts() { return kFacts; }

const CopyFactInfo* find_copy_fact(std::string_view name) {
  const auto* const found =
      std::find_if(kFacts.begin(), kFacts.end(), [&](const CopyFactInfo& each) { return each.name == name; });
  return found == kFacts.end() ? nullptr : found;
}

Shape shape_of(const CopyFactInfo& fact, const Geometry& geometry) {
  Shape shape = {{Axis::kPage, kDynamic}, {Axis::kToken, geometry.page}};
  if (fact.by_head) shape.push_back({Axis::kHead, geometry.group});
  return shape;
}

void verify_recompute(const Recompute& rule) {
  if (rule.layer < 0 || rule.layer >= GraphLimits::kLayers)
    verifying::refuse(rule.where, fmt::format("recompute: there is no layer {}", rule.layer));
  if (rule.rows < 1) verifying::refuse(rule.where, fmt::format("recompute: {} rows look", rule.rows));
  if (rule.kind != Recompute::Kind::kSelected) return;
  const FlowGraph& graph = rule.graph;
  const bool selects = graph.sources.size() == 1 && graph.sources.front() == AttentionSource{.selection = graph.selection()};
  const bool is_rule = graph.ranks_copies && selects && graph.fields.empty() && graph.saves.empty() && graph.patterns.empty() &&
                       graph.variants.empty() && graph.recompute == nullptr && !graph.eviction && graph.layers == LayerChoice();
  if (!is_rule) verifying::refuse(rule.where, "recompute: the rule is no selection of what is copied");
  for (const Node& node : graph.nodes) {
    if (node.stage == Stage::kIndex && node.op != Op::kQuery && node.op != Op::kKey && node.op != Op::kValue) continue;
    verifying::refuse(node, "flow.recompute sees what is known of copies alone");
  }
  for (const State& state : graph.states) {
    const CopyFactInfo* const fact = find_copy_fact(state.name);
    if (fact == nullptr || state.shape != shape_of(*fact, graph.geometry))
      verifying::refuse(state.where, fmt::format("recompute: nothing is known of copies that is called \"{}\"", state.name));
  }
  verify(graph);
  verify_work(rule);
}

void verify_recompute_layer(const FlowGraph& graph, int layers) {
  const Recompute* const rule = graph.recompute.get();
  if (rule == nullptr || rule->layer < layers) return;
  const auto is_of_layer = [](const State& state) {
    const CopyFactInfo* const fact = find_copy_fact(state.name);
    return fact != nullptr && fact->of_layer;
  };
  if (std::none_of(rule->graph.states.begin(), rule->graph.states.end(), is_of_layer)) return;
  verifying::refuse(rule->where, fmt::format("recompute: there is no layer {} in a model of {} layers", rule->layer, layers),
                    fmt::format("layers are numbered 0 to {}", layers - 1));
}

std::string to_text(const Recompute& rule) {
  if (rule.kind != Recompute::Kind::kSelected)
    return rule.kind == Recompute::Kind::kNone ? "recompute none\n" : "recompute all\n";
  std::string text = fmt::format("recompute by layer {}", rule.layer);
  if (rule.rows != kToEnd) text += fmt::format(" rows {}", rule.rows);
  text += "\n";
  for (size_t i = 0; i < rule.graph.nodes.size(); ++i) text += "  " + to_text(rule.graph, static_cast<NodeId>(i)) + "\n";
  return text + fmt::format("  select %{}\n", rule.graph.selection());
}

}  // namespace sluice
