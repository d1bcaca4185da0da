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
    CopyFactInfo{CopyFact::kMass, "mass", true, true, "the weights that the rows which look give it, summed over them"},
    CopyFactInfo{CopyFact::kKeyChange, "key_change", true, true, "squared distance of its key from the copied one"},
    CopyFactInfo{CopyFact::kValueChange, "value_change", true, true, "squared distance of its value from the copied one"},
    CopyFactInfo{CopyFact::kPosition, "position", false, false, "in the prompt, from 0"},
    CopyFactInfo{CopyFact::kMoved, "moved", false, false, "its position less the one where it was computed"},
    CopyFactInfo{CopyFact::kFromEdge, "from_edge", false, false, "tokens before it in its run of copied blocks"},
    CopyFactInfo{CopyFact::kToEdge, "to_edge", false, false, "tokens behind it in its run of copied blocks"},
    CopyFactInfo{CopyFact::kFromNew, "from_new", false, false, "to the nearest new token before it, from 1; inf: none"},
    CopyFactInfo{CopyFact::kToNew, "to_new", false, false, "to the nearest new token behind it, from 1; inf: none"},
    CopyFactInfo{CopyFact::kLooks, "looks", false, false, "1 if it is one of the rows that look, else 0"},
};

}  // namespace

std::span<const CopyFactInfo> copy_facts() { return kFacts; }

const CopyFactInfo* find_copy_fact(std::string_view name) {
  const auto* const found =
      std::find_if(kFacts.begin(), kFacts.end(), [&](const CopyFactInfo& each) { return each.name == name; });
  return found == kFacts.end() ? nullptr : found;
}

void verify_recompute(const Recompute& rule) {
  if (rule.layer < 0 || rule.layer >= GraphLimits::kLayers)
    verifying::refuse(rule.where, fmt::format("recompute: there is no layer {}", rule.layer));
  if (rule.rows < 1) verifying::refuse(rule.where, fmt::format("recompute: {} rows look", rule.rows));
  if (rule.kind != Recompute::Kind::kSelected) return;
  const FlowGraph& graph = rule.graph;
  const bool selects = graph.sources.size() == 1 && graph.sources.front() == AttentionSource{.selection = graph.selection()};
  const bool is_rule = graph.ranks_copies && selects && graph.fields.empty() && graph.saves.empty() && graph.patterns.empty() &&
                       graph.variants.empty() && graph.recompute == nullptr;
  if (!is_rule) verifying::refuse(rule.where, "recompute: the rule is no selection of what is copied");
  for (const Node& node : graph.nodes) {
    if (node.stage == Stage::kIndex && node.op != Op::kQuery && node.op != Op::kKey && node.op != Op::kValue) continue;
    verifying::refuse(node, "flow.recompute sees what is known of copies alone");
  }
  for (const State& state : graph.states) {
    const CopyFactInfo* const fact = find_copy_fact(state.name);
    if (fact == nullptr || has_axis(state.shape, Axis::kHead) != fact->by_head)
      verifying::refuse(state.where, fmt::format("recompute: nothing is known of copies that is called \"{}\"", state.name));
  }
  verify(graph);
}

std::string to_text(const Recompute& rule) {
  std::string text = fmt::format("recompute by layer {}", rule.layer);
  if (rule.rows != kToEnd) text += fmt::format(" rows {}", rule.rows);
  switch (rule.kind) {
    case Recompute::Kind::kNone:
      return "recompute none\n";
    case Recompute::Kind::kAll:
      return "recompute all\n";
    default:
      break;
  }
  text += "\n";
  for (size_t i = 0; i < rule.graph.nodes.size(); ++i) text += "  " + to_text(rule.graph, static_cast<NodeId>(i)) + "\n";
  return text + fmt::format("  select %{}\n", rule.graph.selection());
}

}  // namespace sluice
