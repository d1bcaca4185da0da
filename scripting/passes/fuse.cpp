#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "scripting/graph/ops.h"
#include "scripting/graph/selections.h"
#include "scripting/graph/verify.h"
#include "scripting/passes/passes.h"
#include "scripting/passes/rewrite.h"

// The schedule. A row-wide operator needs its input for every page, so it ends a phase: what reads its result belongs to a
// later phase. Within a phase run, in this order,
//   query   the nodes without page axis (in later phases: those that depend on a row-wide result),
//   pages   all page-local nodes, as one step,
//   row     the row-wide nodes, one step each,
//   select  the selections whose scores are ready, one step each.
// States are saved after the last phase, so that every load still sees the value of the step before. The after stage has phases
// of its own. Saves with a tail have a phase behind all others: what nothing else reads of pages is a step by itself, which is
// run for the pages that leave the tail alone.

namespace sluice::passes {

namespace {

enum class Role : uint8_t { kConstant, kQuery, kPages, kRow, kSelect, kSave };

bool is_row_wide(const Node& node) {
  const bool reads_along_axis =
      is_reduction(node.op) || node.op == Op::kSoftmax || node.op == Op::kNormalize || node.op == Op::kConv1d;
  return reads_along_axis && node.attributes.axis == Axis::kPage;
}

Role role_of(const Node& node) {
  if (node.op == Op::kConstant) return Role::kConstant;
  if (node.op == Op::kSave) return Role::kSave;
  if (is_selection(node.op)) return Role::kSelect;
  if (is_row_wide(node)) return Role::kRow;
  return has_axis(node.shape, Axis::kPage) ? Role::kPages : Role::kQuery;
}

StepKind kind_of(Role role) {
  switch (role) {
    case Role::kQuery:
      return StepKind::kQuery;
    case Role::kRow:
      return StepKind::kRow;
    case Role::kSelect:
      return StepKind::kSelect;
    case Role::kSave:
      return StepKind::kSave;
    default:
      return StepKind::kPages;
  }
}

/// Every select step of a plan serves attention, so selections that no source uses go.
void drop_unused_selections(FlowGraph& graph) {
  std::vector<bool> keep(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) keep[i] = !is_selection(graph.nodes[i].op);
  for (const NodeId id : selections_of(graph)) keep[static_cast<size_t>(id)] = true;
  compact(graph, keep);
}

class StepSchedule {
 public:
  explicit StepSchedule(FlowGraph& graph) : graph_(graph), origins_(graph.nodes.size()) {
    std::iota(origins_.begin(), origins_.end(), 0);
    for (const Node& node : graph_.nodes) roles_.push_back(role_of(node));
  }

  /// Orders the nodes of `graph` by phase and role; afterwards `roles()` and `phases()` are in the new order.
  void run() {
    assign_phases();
    sink_page_nodes();
    split_sources();
    sort_nodes();
  }

  const std::vector<Role>& roles() const { return roles_; }
  const std::vector<int>& phases() const { return phases_; }

 private:
  /// Whether a node belongs to a step.
  bool is_staged(size_t i) const { return graph_.nodes[i].stage != Stage::kCache; }

  void assign_phases() {
    phases_.assign(graph_.nodes.size(), 0);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!is_staged(i)) continue;
      for (const NodeId id : graph_.nodes[i].inputs) {
        const auto input = static_cast<size_t>(id);
        phases_[i] = std::max(phases_[i], phases_[input] + (roles_[input] == Role::kRow ? 1 : 0));
      }
      last_phase_ = std::max(last_phase_, phases_[i]);
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (roles_[i] == Role::kSave) phases_[i] = last_phase_ + (graph_.nodes[i].attributes.last > 0 ? 1 : 0);
    }
  }

  /// Numbers a page that node i needs from other page-local nodes; sources can be read again and cost nothing to keep.
  int64_t kept_by_operands(size_t i) const {
    int64_t elements = 0;
    for (const NodeId id : graph_.nodes[i].inputs) {
      const auto input = static_cast<size_t>(id);
      const bool stored = roles_[input] == Role::kPages && !is_source(graph_.nodes[input].op);
      if (stored) elements += elements_per_page(graph_.nodes[input].shape);
    }
    return elements;
  }

  /// Moves page-local nodes to the phase that reads them first, where that needs no larger row buffers.
  void sink_page_nodes() {
    constexpr int kUnread = INT32_MAX;
    std::vector<int> wanted(graph_.nodes.size(), kUnread);
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      if (!is_staged(i)) continue;
      const bool movable = roles_[i] == Role::kPages && wanted[i] != kUnread;
      if (movable && kept_by_operands(i) <= elements_per_page(graph_.nodes[i].shape)) phases_[i] = wanted[i];
      for (const NodeId input : graph_.nodes[i].inputs) {
        int& phase = wanted[static_cast<size_t>(input)];
        phase = std::min(phase, phases_[i]);
      }
    }
  }

  /// Gives every phase that reads a page-local source its own copy: reading a page again is cheaper than a row buffer of it.
  void split_sources() {
    std::map<std::pair<NodeId, int>, NodeId> copies;
    const size_t readers = graph_.nodes.size();
    for (size_t i = 0; i < readers; ++i) {
      if (!is_staged(i)) continue;
      for (size_t k = 0; k < graph_.nodes[i].inputs.size(); ++k) {
        const NodeId input = graph_.nodes[i].inputs[k];
        const auto source = static_cast<size_t>(input);
        if (roles_[source] != Role::kPages || !is_source(graph_.nodes[source].op)) continue;
        if (phases_[source] == phases_[i]) continue;
        graph_.nodes[i].inputs[k] = copy_of(copies, input, phases_[i]);
      }
    }
  }

  NodeId copy_of(std::map<std::pair<NodeId, int>, NodeId>& copies, NodeId source, int phase) {
    if (const auto known = copies.find({source, phase}); known != copies.end()) return known->second;
    if (graph_.nodes.size() >= GraphLimits::kNodes) return source;
    const auto copy = static_cast<NodeId>(graph_.nodes.size());
    Node node = graph_.nodes[static_cast<size_t>(source)];
    graph_.nodes.push_back(std::move(node));
    roles_.push_back(Role::kPages);
    phases_.push_back(phase);
    origins_.push_back(source);
    copies[{source, phase}] = copy;
    return copy;
  }

  void sort_nodes() {
    std::vector<NodeId> order(graph_.nodes.size());
    std::iota(order.begin(), order.end(), 0);
    const auto key = [this](NodeId id) {
      const auto i = static_cast<size_t>(id);
      const bool staged = is_staged(i);
      const Role role = staged ? roles_[i] : Role::kConstant;
      // Constants come before, saves after all phases.
      const int group = !staged || role == Role::kConstant ? 0 : role == Role::kSave ? 2 : 1;
      return std::tuple(graph_.nodes[i].stage, group, group == 1 ? phases_[i] : 0, role, origins_[i]);
    };
    std::stable_sort(order.begin(), order.end(), [&key](NodeId a, NodeId b) { return key(a) < key(b); });
    std::vector<Role> roles;
    std::vector<int> phases;
    for (const NodeId id : order) {
      roles.push_back(roles_[static_cast<size_t>(id)]);
      phases.push_back(phases_[static_cast<size_t>(id)]);
    }
    roles_ = std::move(roles);
    phases_ = std::move(phases);
    reorder(graph_, order);
  }

  FlowGraph& graph_;
  std::vector<Role> roles_;
  std::vector<int> phases_;
  std::vector<NodeId> origins_;  // position in the program; a copy has that of its source
  int last_phase_ = 0;
};

void find_outputs(const FlowGraph& graph, std::vector<PlanStep>& steps) {
  constexpr int kNowhere = -1;
  std::vector<int> step_of(graph.nodes.size(), kNowhere);
  for (size_t s = 0; s < steps.size(); ++s) {
    for (const NodeId id : steps[s].nodes) step_of[static_cast<size_t>(id)] = static_cast<int>(s);
  }
  std::vector<bool> leaves(graph.nodes.size(), false);
  for (const AttentionSource& source : graph.sources) {
    for (const NodeId id : {source.bias, source.logits}) {
      if (id != kNoNode) leaves[static_cast<size_t>(id)] = true;
    }
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const NodeId input : graph.nodes[i].inputs) {
      if (step_of[static_cast<size_t>(input)] != step_of[i]) leaves[static_cast<size_t>(input)] = true;
    }
  }
  for (PlanStep& step : steps) {
    for (const NodeId id : step.nodes) {
      if (leaves[static_cast<size_t>(id)]) step.outputs.push_back(id);
    }
  }
}

void find_steps_of_leaving_pages(const FlowGraph& graph, std::vector<PlanStep>& steps) {
  for (PlanStep& step : steps) {
    if (step.kind != StepKind::kPages || step.outputs.empty()) continue;
    std::vector<bool> inside(graph.nodes.size(), false);
    for (const NodeId id : step.nodes) inside[static_cast<size_t>(id)] = true;
    step.is_of_leaving_pages = true;
    for (size_t reader = 0; reader < graph.nodes.size(); ++reader) {
      const Node& node = graph.nodes[reader];
      if (inside[reader] || (node.op == Op::kSave && node.attributes.last > 0)) continue;
      const auto reads = [&](NodeId id) { return inside[static_cast<size_t>(id)]; };
      if (std::any_of(node.inputs.begin(), node.inputs.end(), reads)) step.is_of_leaving_pages = false;
    }
    for (const AttentionSource& source : graph.sources) {
      for (const NodeId id : {source.bias, source.logits}) {
        if (id != kNoNode && inside[static_cast<size_t>(id)]) step.is_of_leaving_pages = false;
      }
    }
  }
}

/// A row of outputs is kept for every page of a request, by every thread.
void check_kept(const Plan& plan) {
  int64_t kept = 0;
  const auto keep = [&](NodeId id) {
    const Node& node = plan.graph.nodes[static_cast<size_t>(id)];
    if (has_axis(node.shape, Axis::kPage)) kept += elements_per_page(node.shape);
    if (kept <= GraphLimits::kKeptElements) return;
    throw FlowError(node.where,
                    fmt::format("{}: with {} the flow keeps more than {} numbers a page from one step to the next",
                                spoken_name_of(node.op), to_string(node.shape), GraphLimits::kKeptElements),
                    "what an operator over \"page\" reads, and what is read both before and after one, is kept for every page: "
                    "reduce it first");
  };
  for (const auto* steps : {&plan.index, &plan.after}) {
    for (const PlanStep& step : *steps) std::for_each(step.outputs.begin(), step.outputs.end(), keep);
  }
}

PagePart part_of(const FlowGraph& graph, const std::string& name) {
  const auto entries = [&](const Shape& shape) { return static_cast<int>(elements_per_page(shape) / graph.geometry.head_dim); };
  if (const Field* const field = graph.find_field(name))
    return {.field = static_cast<int>(field - graph.fields.data()), .entries = entries(field->shape)};
  if (const State* const state = graph.find_state(name))
    return {.state = static_cast<int>(state - graph.states.data()), .entries = entries(state->shape)};
  return {};
}

AttendStep attend_step(const FlowGraph& graph) {
  AttendStep step;
  for (const AttentionSource& source : graph.sources) {
    step.sources.push_back({.selection = source.selection,
                            .keys = part_of(graph, source.keys),
                            .values = part_of(graph, source.values),
                            .bias = source.bias,
                            .logits = source.logits,
                            .others = source.others,
                            .shares = source.shares,
                            .group_pages = source.group_pages,
                            .opened = source.opened});
  }
  return step;
}

}  // namespace

Plan fuse(FlowGraph graph, bool together) {
  drop_unused_selections(graph);
  StepSchedule schedule(graph);
  schedule.run();
  Plan plan;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    const Role role = schedule.roles()[i];
    if (role == Role::kConstant) continue;
    if (graph.nodes[i].stage == Stage::kCache) {
      plan.cache.push_back(id);
      continue;
    }
    std::vector<PlanStep>& steps = graph.nodes[i].stage == Stage::kIndex ? plan.index : plan.after;
    const bool joins = together && (role == Role::kQuery || role == Role::kPages) && !steps.empty() &&
                       steps.back().kind == kind_of(role) &&
                       schedule.phases()[i] == schedule.phases()[static_cast<size_t>(steps.back().nodes.back())];
    if (!joins) steps.push_back({.kind = kind_of(role)});
    steps.back().nodes.push_back(id);
  }
  for (std::vector<PlanStep>* steps : {&plan.index, &plan.after}) {
    find_outputs(graph, *steps);
    find_steps_of_leaving_pages(graph, *steps);
  }
  plan.layout = page_layout(graph.geometry, graph.fields);
  plan.attend = attend_step(graph);
  plan.graph = std::move(graph);
  check_kept(plan);
  return plan;
}

}  // namespace sluice::passes
