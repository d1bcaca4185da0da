// What attention runs over, and what follows it.

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "scripting/graph/ops.h"
#include "scripting/graph/selections.h"
#include "scripting/graph/verify.h"
#include "scripting/graph/verify_parts.h"

namespace sluice::verifying {

namespace {

/// A state that attention reads as the last step left it: the after stage saves it, once attention has run.
void verify_attended_state(const FlowGraph& graph, const State& state) {
  const auto is_own = [&](NodeId id) {
    const Node& save = graph.nodes[static_cast<size_t>(id)];
    return save.attributes.field == state.name && save.stage == Stage::kAfter;
  };
  if (std::any_of(graph.saves.begin(), graph.saves.end(), is_own)) return;
  refuse(state.where, fmt::format("attention reads state \"{}\", which flow.after does not save", state.name),
         "a summary that is a state is made once attention has run: c.NAME:save(x, {tail = 128}) in flow.after");
}

/// Entries a page of a field or a state whose shape is that of keys or values: [dim] or [sub, dim], with as many channels as a
/// head.
int entries_of(const FlowGraph& graph, const std::string& name) {
  const Field* const field = graph.find_field(name);
  const State* const state = graph.find_state(name);
  if (field == nullptr && state == nullptr)
    refuse(graph.where, fmt::format("attention reads \"{}\", which no field and no state is called", name));
  if (field == nullptr) verify_attended_state(graph, *state);
  std::span<const Dimension> shape = field == nullptr ? state->shape : field->shape;
  const bool is_paged = !shape.empty() && shape.front().axis == Axis::kPage;  // fields never are, by themselves
  if (is_paged == (field == nullptr)) {
    if (is_paged) shape = shape.subspan(1);
    const bool has_entries = shape.size() == 2 && shape[0].axis == Axis::kSub;
    if ((shape.size() == 1 || has_entries) && shape.back() == Dimension{Axis::kDim, graph.geometry.head_dim})
      return has_entries ? shape[0].extent : 1;
  }
  refuse(
      field == nullptr ? state->where : field->where,
      fmt::format("attention reads \"{}\" {} and wants [dim {}] or [sub, dim {}] of a page", name,
                  to_string(field == nullptr ? state->shape : field->shape), graph.geometry.head_dim, graph.geometry.head_dim));
}

/// Pages that have one entry together, and those that have not.
void verify_groups(const FlowGraph& graph, const AttentionSource& source) {
  if (source.group_pages < 1 || source.group_pages > GraphLimits::kPages) {
    refuse(graph.where, fmt::format("groups of {} pages", source.group_pages));
  }
  const bool has_groups = source.group_pages > 1;
  if (has_groups && (source.keys == "k" || !source.others || entries_of(graph, source.keys) != 1)) {
    refuse(graph.where, "groups are of pages that have one entry each, and of all that are not opened");
  }
  if (source.opened == kNoNode) return;
  if (source.opened < 0 || static_cast<size_t>(source.opened) >= graph.nodes.size())
    refuse(graph.where, "attention refers to an operator that does not exist");
  const Node& opened = graph.nodes[static_cast<size_t>(source.opened)];
  if (!has_groups) refuse(opened, "groups of one page have nothing to open");
  if (!is_selection(opened.op) || is_of_tokens(graph, source.opened)) refuse(opened, "a selection of pages opens groups");
}

void verify_source(const FlowGraph& graph, const AttentionSource& source) {
  const auto node = [&](NodeId id) -> const Node& {
    if (id < 0 || static_cast<size_t>(id) >= graph.nodes.size())
      refuse(graph.where, "attention refers to an operator that does not exist");
    return graph.nodes[static_cast<size_t>(id)];
  };
  const Node& selected = node(source.selection);
  if (!is_selection(selected.op)) refuse(graph.where, "the result of the index stage is not a selection");
  if (source.beside) {
    verify_cost(selected.where, *source.beside, "the pattern beside the selection");
    if (source.keys != "k") refuse(selected, "a pattern has tokens, and fields have pages");
  }
  if ((source.keys == "k") != (source.values == "v")) {
    refuse(graph.where, fmt::format("attention pairs keys \"{}\" with values \"{}\"", source.keys, source.values),
           "a token's key goes with its value, and a field with a field");
  }
  const bool of_tokens = is_of_tokens(graph, source.selection);
  if (of_tokens && (source.keys != "k" || source.others || source.shares)) {
    refuse(selected, "fields stand for pages, and what is selected are tokens");
  }
  if (source.keys == "k" && (source.others || source.shares)) {
    refuse(selected, "tokens are those of selected pages, and weigh what they weigh", "fields stand for the other pages");
  }
  if (source.keys != "k" && entries_of(graph, source.keys) != entries_of(graph, source.values)) {
    refuse(graph.where, fmt::format("\"{}\" and \"{}\" have not as many entries a page", source.keys, source.values));
  }
  if (source.shares && entries_of(graph, source.keys) != 1) {
    refuse(graph.where, fmt::format("the tokens of a page share the weight of one entry, and \"{}\" has {}", source.keys,
                                    entries_of(graph, source.keys)));
  }
  verify_groups(graph, source);
  if (source.logits != kNoNode && !is_product_of_keys(graph, node(source.logits), source.keys)) {
    refuse(node(source.logits), fmt::format("attention takes this for the product of the query and \"{}\"", source.keys));
  }
  if (source.bias == kNoNode) return;
  const Node& bias = node(source.bias);
  const Shape of_pages = {{Axis::kPage, kDynamic}};
  const Shape of_heads = {{Axis::kPage, kDynamic}, {Axis::kHead, graph.geometry.group}};
  if (bias.stage != Stage::kIndex || has_no_shape(bias.op) || (bias.shape != of_pages && bias.shape != of_heads)) {
    refuse(bias, fmt::format("attention adds {} to its logits and wants [page] or [page, head]", to_string(bias.shape)));
  }
}

/// Which rows of a prompt the after stage is told of; and without a selection no layer runs the stage.
void verify_after(const FlowGraph& graph) {
  if (graph.mass_rows < 0 || (graph.mass_rows > GraphLimits::kMassRows && graph.mass_rows != kToEnd)) {
    refuse(graph.where, fmt::format("sluice.flow: prompt_mass = {} is not a number of rows", graph.mass_rows));
  }
  const auto first =
      std::find_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.stage == Stage::kAfter; });
  if (first == graph.nodes.end() || !graph.sources.empty()) return;
  if (graph.eviction && !graph.patterns.empty()) {
    refuse(graph.eviction->where, "evict: layers keep what their pattern reads, and nobody else leaves",
           "keep the tokens of a pattern by sluice.evict(score, {keep = pattern}), without flow.pattern");
  }
  refuse_idle_after(first->where);
}

}  // namespace

void refuse_idle_after(const SourceLocation& where) {
  refuse(where, "flow.after follows what flow.index selects, and the flow selects nothing",
         "write function flow.index(q, c) ... return sluice.topk(score, {k = 32}) end, or have flow.after evict tokens");
}

void verify_tails(const FlowGraph& graph) {
  for (const AttentionSource& source : graph.sources) {
    int tail = 0;
    for (const NodeId leaf : leaf_selections(graph, source.selection))
      tail = std::max(tail, graph.nodes[static_cast<size_t>(leaf)].attributes.last);
    for (const NodeId id : graph.saves) {
      const Node& save = graph.nodes[static_cast<size_t>(id)];
      const std::string& state = save.attributes.field;
      if ((state != source.keys && state != source.values) || save.attributes.last <= tail) continue;
      refuse(
          save.where,
          fmt::format("save: \"{}\" is there once pages leave a tail of {} pages, and the cover's has {}: those between would be "
                      "attended to as the state began",
                      state, save.attributes.last, tail),
          "give both the same tail, for example c.ksum:save(x, {tail = 128}) and sluice.cover{tail = 128, ...}");
    }
  }
}

bool is_product_of_keys(const FlowGraph& graph, const Node& node, const std::string& keys) {
  if (node.op != Op::kContract || node.stage != Stage::kIndex || node.attributes.axis != Axis::kDim) return false;
  const auto is_pair = [&](NodeId first, NodeId second) {
    const Node& query = graph.nodes[static_cast<size_t>(first)];
    const Node& field = graph.nodes[static_cast<size_t>(second)];  // or a state
    return query.op == Op::kQuery && (field.op == Op::kField || field.op == Op::kLoad) && field.attributes.field == keys;
  };
  const Shape of_heads = {{Axis::kPage, kDynamic}, {Axis::kHead, graph.geometry.group}};
  const bool is_any = is_pair(node.inputs[0], node.inputs[1]) || is_pair(node.inputs[1], node.inputs[0]);
  return is_any && node.shape == of_heads;
}

void verify_masses(const FlowGraph& graph, bool is_any) {
  const auto mass = std::find_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.op == Op::kMass; });
  if (is_any || mass == graph.nodes.end()) return;
  refuse(mass->where, "flow.after reads mass, and every layer is \"full\": no attention of the flow's gives it",
         "make a layer \"sparse\", for example layers = {rest = \"sparse\"}");
}

void verify_attention(const FlowGraph& graph) {
  const bool any_sparse = graph.layers.rest_sparse || std::any_of(graph.layers.sparse.begin(), graph.layers.sparse.end(),
                                                                  [](const auto& layer) { return layer.second; });
  verify_after(graph);
  verify_masses(graph, any_sparse);
  if (graph.sources.empty()) {
    if (any_sparse && graph.patterns.empty()) {
      refuse(graph.where, "the flow has sparse layers and neither flow.index nor flow.pattern",
             "write function flow.index(q, c) ... return sluice.topk(score, {k = 32}) end, or flow.pattern = "
             "sluice.pattern.window(512), or set layers = {rest = \"full\"}");
    }
    return;
  }
  if (graph.sources.size() > GraphLimits::kSources) {
    refuse(graph.where,
           fmt::format("attention runs over {} sources, at most {} are allowed", graph.sources.size(), GraphLimits::kSources));
  }
  for (const AttentionSource& source : graph.sources) verify_source(graph, source);
  if (graph.attends_plainly()) return;
  const Node& first = graph.nodes[static_cast<size_t>(graph.selection())];
  if (graph.sources.front().others) {
    refuse(first, "attention begins with the entries of selected pages: others there may be none");
  }
  const auto has_beside = [](const AttentionSource& source) { return source.beside.has_value(); };
  if (!graph.patterns.empty() || std::any_of(graph.sources.begin(), graph.sources.end(), has_beside)) {
    refuse(first.where, "attention to summaries, and a pattern that hides tokens of their pages", "use one of the two");
  }
  const auto of_tokens = [](const AttentionSource& source) { return source.keys == "k"; };
  if (std::count_if(graph.sources.begin(), graph.sources.end(), of_tokens) > 1) {
    refuse(first, "attention to the tokens of two selections", "unite them: union(a, b)");
  }
  if (graph.selects_tokens()) refuse(first, "attention to summaries, beside single tokens", "select pages, or use no summaries");
  // Each page that shares its weight does so with one entry.
  if (std::count_if(graph.sources.begin(), graph.sources.end(), [](const AttentionSource& source) { return source.shares; }) >
      1) {
    refuse(first, "two sources say what pages weigh");
  }
  if (std::count_if(graph.sources.begin(), graph.sources.end(),
                    [](const AttentionSource& source) { return source.group_pages > 1; }) > 1) {
    refuse(first, "two sources have groups of pages");
  }
}

}  // namespace sluice::verifying
