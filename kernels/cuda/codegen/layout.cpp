#include "kernels/cuda/codegen/layout.h"

#include <algorithm>

#include "scripting/graph/ops.h"
#include "scripting/graph/selections.h"

namespace sluice::cuda::codegen {

bool is_drawn(const Node& selection) { return selection.op == Op::kApproxTopK && selection.attributes.tolerate > 0; }

bool counts_scores(const Node& selection) { return selection.op == Op::kThreshold || selection.op == Op::kTopP; }

bool reads_along_axis(Op op) {
  return is_reduction(op) || is_interleave(op) || op == Op::kContract || op == Op::kSoftmax || op == Op::kNormalize ||
         op == Op::kConv1d;
}

bool is_block_part(Op op) { return op == Op::kKey || op == Op::kValue || op == Op::kField; }

bool is_line_of_state(const Node& node) {
  return node.op == Op::kLoad && has_axis(node.shape, Axis::kPage) && !node.shape.empty() && node.shape.back().axis == Axis::kDim;
}

BlockPart part_of(const Plan& plan, const Node& node) {
  if (node.op == Op::kKey) return {plan.layout.key_offset, plan.layout.kv};
  if (node.op == Op::kValue) return {plan.layout.value_offset, plan.layout.kv};
  for (size_t i = 0; i < plan.graph.fields.size(); ++i) {
    if (plan.graph.fields[i].name != node.attributes.field) continue;
    return {plan.fields().field_offsets[i], plan.graph.fields[i].type, plan.has_field_pages()};
  }
  throw InternalError("flow: no field \"" + node.attributes.field + "\"");
}

FlowLayout::FlowLayout(const Plan& given) : plan(given), slots(given.graph.nodes.size()) {
  for (const NodeId id : scored_selections(plan.graph)) selections.push_back({id, node(id).inputs[0]});
  find_attended();
  find_query_only();
  find_kept();
  place_states();
  cut();
  if (repeats_queries()) keep_queries();
  place();
}

int FlowLayout::state_index(const std::string& name) const {
  for (size_t i = 0; i < plan.graph.states.size(); ++i) {
    if (plan.graph.states[i].name == name) return static_cast<int>(i);
  }
  throw InternalError("flow: no state \"" + name + "\"");
}

int FlowLayout::selection_index(NodeId id) const {
  for (size_t i = 0; i < selections.size(); ++i) {
    if (selections[i].node == id) return static_cast<int>(i);
  }
  throw InternalError("flow: node " + std::to_string(id) + " selects by no score");
}

std::vector<NodeId> FlowLayout::computed_by(const PlanStep& step) const {
  std::vector<NodeId> ids;
  std::copy_if(step.nodes.begin(), step.nodes.end(), std::back_inserter(ids),
               [&](NodeId id) { return kept[static_cast<size_t>(id)] || slots[static_cast<size_t>(id)].stored; });
  return ids;
}

std::vector<NodeId> FlowLayout::computed_by(const Launch& launch) const {
  std::vector<NodeId> ids;
  for (const PlanStep* step : launch.steps) {
    const std::vector<NodeId> of_step = computed_by(*step);
    ids.insert(ids.end(), of_step.begin(), of_step.end());
  }
  return ids;
}

int FlowLayout::shift_of(NodeId id) const {
  for (const ScoredSelection& selection : selections) {
    if (selection.score == id) return (kPad - node(selection.node).attributes.first % kPad) % kPad;
  }
  return 0;
}

/// A bias that is the same for all pages is a number of the kernel's.
void FlowLayout::find_attended() {
  for (const AttendedSource& source : plan.attend.sources) {
    if (source.logits != kNoNode) attended.push_back(source.logits);
    if (source.bias != kNoNode && node(source.bias).op != Op::kFill) attended.push_back(source.bias);
  }
}

void FlowLayout::find_query_only() {
  query_only.resize(plan.graph.nodes.size());
  for (size_t i = 0; i < query_only.size(); ++i) {
    const Node& current = plan.graph.nodes[i];
    const bool effect = current.op == Op::kSave || is_selection(current.op);
    query_only[i] = current.stage != Stage::kCache && !effect && !has_axis(current.shape, Axis::kPage) &&
                    std::all_of(current.inputs.begin(), current.inputs.end(),
                                [&](NodeId input) { return query_only[static_cast<size_t>(input)]; });
  }
}

int64_t FlowLayout::keep_beyond(int most) {
  kept.assign(plan.graph.nodes.size(), false);
  inlined.assign(plan.graph.nodes.size(), 1);
  int64_t computations = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    const Node& current = plan.graph.nodes[i];
    // Reading a value at two positions computes it twice, so that costs may double from node to node.
    int cost = 1;
    for (const NodeId input : current.inputs) cost += inlined[static_cast<size_t>(input)];
    const bool is_read = current.op != Op::kSave && !is_selection(current.op);
    kept[i] = is_read && (reads_along_axis(current.op) || cost > most);
    if (is_read && !kept[i]) inlined[i] = cost;
    if (!is_read || kept[i]) computations += cost;
  }
  return computations;
}

/// The text is to be as long as the flow, about, however often it reads something that is cheap.
void FlowLayout::find_kept() {
  constexpr int kMostInline = 256;
  const auto wanted = static_cast<int64_t>(8'192 + 8 * plan.graph.nodes.size());
  for (int most = kMostInline; keep_beyond(most) > wanted && most > 1; most /= 2) {
  }
}

bool FlowLayout::repeats_queries() const {
  size_t computed = 0;
  for (size_t i = 0; i < kept.size(); ++i) computed += query_only[i] && kept[i] ? 1 : 0;
  // Rows that one kernel holds never come to this: there are few launches.
  return computed * (launches.size() + after.size()) > 1'024 + 4 * kept.size();
}

void FlowLayout::keep_queries() {
  for (size_t i = 0; i < query_only.size(); ++i) query_only[i] = query_only[i] && is_source(plan.graph.nodes[i].op);
  launches.clear();
  after.clear();
  cut();
}

void FlowLayout::place_states() {
  for (const State& state : plan.graph.states) {
    const bool paged = has_axis(state.shape, Axis::kPage);
    int64_t& numbers = paged ? state_page_numbers : state_fixed_numbers;
    states.push_back({paged, numbers});
    numbers += elements_per_page(state.shape);
  }
  for (const NodeId save : plan.graph.saves) {
    if (node(save).attributes.last == 0) continue;
    states[static_cast<size_t>(state_index(node(save).attributes.field))].saved_offset = state_page_numbers++;
  }
  state_fixed_numbers = (state_fixed_numbers + kPad - 1) / kPad * kPad;
}

/// Little to read for a page.
bool FlowLayout::is_light(const PlanStep& step) const {
  return std::none_of(step.nodes.begin(), step.nodes.end(),
                      [&](NodeId id) { return is_block_part(node(id).op) || is_line_of_state(node(id)); });
}

bool FlowLayout::saves_by_pages() const {
  int steps = 0;
  int of_all_pages = 0;
  for (const PlanStep& step : plan.after) {
    steps += step.kind == StepKind::kPages ? 1 : 0;
    of_all_pages += step.kind == StepKind::kPages && !step.is_of_leaving_pages ? 1 : 0;
    if (step.kind == StepKind::kRow) return false;
    if (step.kind == StepKind::kQuery &&
        !std::all_of(step.nodes.begin(), step.nodes.end(), [&](NodeId id) { return query_only[static_cast<size_t>(id)]; })) {
      return false;
    }
  }
  return steps > 0 && of_all_pages <= 1 && std::all_of(plan.graph.saves.begin(), plan.graph.saves.end(), [&](NodeId save) {
           return node(save).stage == Stage::kAfter &&
                  states[static_cast<size_t>(state_index(node(save).attributes.field))].paged;
         });
}

void FlowLayout::cut() {
  for (const PlanStep& step : plan.index) cut(step, launches);
  if (saves_by_pages()) {
    Launch& launch = after.emplace_back(Launch{.saves = plan.graph.saves});
    for (const PlanStep& step : plan.after) {
      if (step.kind == StepKind::kPages) launch.steps.push_back(&step);
    }
    // What is saved is computed before any state changes.
    for (const NodeId save : plan.graph.saves) {
      const NodeId value = node(save).inputs[0];
      kept[static_cast<size_t>(value)] = kept[static_cast<size_t>(value)] || has_axis(node(value).shape, Axis::kPage);
    }
    return;
  }
  for (const PlanStep& step : plan.after) cut(step, after);
  if (plan.graph.saves.empty()) return;
  // A load sees the values of the step before, so states change when nothing is left to compute.
  std::vector<Launch>& last = plan.after.empty() ? launches : after;
  if (last.empty() || !last.back().by_row) last.push_back({.by_row = true});
  last.back().saves = plan.graph.saves;
}

void FlowLayout::cut(const PlanStep& step, std::vector<Launch>& to) const {
  const auto by_row = [&]() -> Launch& {
    if (to.empty() || !to.back().by_row) to.push_back({.by_row = true});
    return to.back();
  };
  switch (step.kind) {
    case StepKind::kQuery:
      if (std::all_of(step.nodes.begin(), step.nodes.end(), [&](NodeId id) { return query_only[static_cast<size_t>(id)]; })) {
        break;
      }
      by_row().steps.push_back(&step);
      break;
    case StepKind::kPages:
      // What attention gave is little beside what it read, and states are saved by row.
      if (!is_light(step) || (to.empty() && &to != &after) || (!to.empty() && !to.back().by_row)) {
        to.push_back({.by_row = false});
        to.back().steps.push_back(&step);
      } else {
        by_row().steps.push_back(&step);
      }
      break;
    case StepKind::kRow:
      by_row().steps.push_back(&step);
      break;
    case StepKind::kSelect:
      for (const NodeId id : step.nodes) {
        if (!is_scored(node(id).op)) continue;
        Launch& last = counts_scores(node(id)) || to.empty() ? by_row() : to.back();
        last.plans.push_back(id);
      }
      break;
    case StepKind::kSave:
      break;
  }
}

/// Whether the node scales, shifts or bounds what is stored: one stored value of pages and constants.
bool FlowLayout::is_one_step_from_stored(NodeId id) const {
  const Node& current = node(id);
  if (!is_binary_elementwise(current.op) || current.op == Op::kDiv || kept[static_cast<size_t>(id)]) return false;
  int stored = 0;
  for (const NodeId input : current.inputs) {
    if (slots[static_cast<size_t>(input)].stored && has_axis(node(input).shape, Axis::kPage)) {
      ++stored;
    } else if (node(input).op != Op::kConstant && node(input).op != Op::kFill) {
      return false;
    }
  }
  return stored == 1;
}

/// Sources are read where they lie, and what is one operation away from a stored value is computed where it is read, unless
/// something else needs it in a buffer.
bool FlowLayout::stays_inline(NodeId id) const {
  const bool is_cheap = is_one_step_from_stored(id);
  if (!is_source(node(id).op) && !is_cheap) return false;
  const bool scored = std::any_of(selections.begin(), selections.end(), [&](const auto& s) { return s.score == id; });
  if (scored || std::find(attended.begin(), attended.end(), id) != attended.end()) return false;
  if (is_cheap) return true;
  if (node(id).op != Op::kLoad) return true;
  // A state that is saved as another one must not have changed by then.
  return std::none_of(plan.graph.saves.begin(), plan.graph.saves.end(), [&](NodeId save) {
    return node(save).inputs[0] == id && node(save).attributes.field != node(id).attributes.field;
  });
}

void FlowLayout::place() {
  const auto store = [&](NodeId id) {
    RowSlot& slot = slots[static_cast<size_t>(id)];
    if (slot.stored || query_only[static_cast<size_t>(id)]) return;
    slot.stored = true;
    slot.paged = has_axis(node(id).shape, Axis::kPage);
    slot.per_page = elements_per_page(node(id).shape);
    if (slot.paged) {
      slot.offset = row_numbers;
      slot.buffer = buffers++;
      row_numbers += slot.per_page;
    } else {
      slot.offset = fixed_numbers;
      fixed_numbers += slot.per_page;
    }
  };
  const auto place_launch = [&](const Launch& launch) {
    for (const PlanStep* step : launch.steps) {
      for (const NodeId id : step->nodes) {
        const bool output = std::find(step->outputs.begin(), step->outputs.end(), id) != step->outputs.end();
        // What a launch by row keeps has no other place.
        const bool handed_on = output && !stays_inline(id) && (launch.by_row || launch.saves.empty());
        if (handed_on || (launch.by_row && kept[static_cast<size_t>(id)])) store(id);
      }
    }
  };
  std::for_each(launches.begin(), launches.end(), place_launch);
  held_numbers = row_numbers;
  std::for_each(after.begin(), after.end(), place_launch);
  fixed_numbers = (fixed_numbers + kPad - 1) / kPad * kPad;
}

}  // namespace sluice::cuda::codegen
