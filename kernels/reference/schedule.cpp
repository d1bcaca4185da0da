#include "kernels/reference/schedule.h"

#include <algorithm>

#include "scripting/graph/ops.h"
#include "scripting/graph/selections.h"
#include "scripting/graph/verify.h"

namespace sluice::oracle {

namespace {

constexpr int kNever = -1;
constexpr int64_t kWorkOfRanking = 64;  // of a page by one selection: it is sorted in, several times, and compared

Span span_of(const Node& node) {
  if (node.op == Op::kSave || is_selection(node.op)) return Span::kEffect;
  const bool works_along =
      is_reduction(node.op) || node.op == Op::kSoftmax || node.op == Op::kNormalize || node.op == Op::kConv1d;
  if (works_along && node.attributes.axis == Axis::kPage) return Span::kRow;
  return has_axis(node.shape, Axis::kPage) ? Span::kPage : Span::kOnce;
}

std::vector<bool> needed_by(const FlowGraph& graph, const std::vector<NodeId>& roots) {
  std::vector<bool> live(graph.nodes.size(), false);
  for (const NodeId root : roots) live[size_t(root)] = true;
  for (size_t id = graph.nodes.size(); id-- > 0;) {
    if (!live[id]) continue;
    for (const NodeId input : graph.nodes[id].inputs) live[size_t(input)] = true;
  }
  return live;
}

/// The phase that each node behind the cache stage is evaluated in; effects are in the last.
std::vector<int> phases_of(const FlowGraph& graph, const std::vector<Span>& spans) {
  std::vector<int> phases(graph.nodes.size(), 0);
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    for (const NodeId input : graph.nodes[id].inputs) {
      phases[id] = std::max(phases[id], phases[size_t(input)] + (spans[size_t(input)] == Span::kRow ? 1 : 0));
    }
  }
  return phases;
}

}  // namespace

Schedule::Schedule(const FlowGraph& graph, const std::vector<NodeId>& roots)
    : live(needed_by(graph, roots)), stored(graph.nodes.size(), false) {
  for (const Node& node : graph.nodes) spans.push_back(span_of(node));
  const std::vector<int> phase_of = phases_of(graph, spans);
  const auto is_evaluated = [&](size_t id) { return live[id] && graph.nodes[id].stage != Stage::kCache; };
  int last = 0;
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    if (is_evaluated(id)) last = std::max(last, phase_of[id]);
  }
  phases.resize(size_t(last) + 1);

  const auto is_paged_source = [&](NodeId id) {
    return spans[size_t(id)] == Span::kPage && is_source(graph.nodes[size_t(id)].op);
  };
  std::vector<int> last_reader(graph.nodes.size(), kNever);
  const auto add_source = [&](NodeId id, int phase) { phases[size_t(phase)].pages.push_back(id); };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!is_evaluated(i)) continue;
    const auto id = NodeId(i);
    const int phase = spans[i] == Span::kEffect ? last : phase_of[i];
    for (const NodeId input : graph.nodes[i].inputs) {
      const auto from = size_t(input);
      const bool whole = spans[i] != Span::kPage || (phase_of[from] != phase && !is_paged_source(input));
      const bool paged = has_axis(graph.nodes[from].shape, Axis::kPage);
      if (paged) last_reader[from] = std::max(last_reader[from], phase);
      if (paged && whole) stored[from] = true;
      if (is_paged_source(input)) add_source(input, phase);
    }
    if (is_paged_source(id)) continue;
    Phase& own = phases[size_t(phase)];
    if (spans[i] == Span::kOnce) own.once.push_back(id);
    if (spans[i] == Span::kPage) own.pages.push_back(id);
    if (spans[i] == Span::kRow) {
      own.rows.push_back(id);
      stored[i] = true;
    }
  }
  for (const NodeId root : roots) {
    const auto at = size_t(root);
    stored[at] = stored[at] || has_axis(graph.nodes[at].shape, Axis::kPage);
    last_reader[at] = kNever;
    if (is_paged_source(root)) add_source(root, last);
  }
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    if (stored[id] && last_reader[id] >= 0 && last_reader[id] < last)
      phases[size_t(last_reader[id])].last_read.push_back(NodeId(id));
  }
  for (Phase& phase : phases) {
    std::sort(phase.pages.begin(), phase.pages.end());
    phase.pages.erase(std::unique(phase.pages.begin(), phase.pages.end()), phase.pages.end());
  }
}

std::vector<NodeId> roots_of(const FlowGraph& graph) {
  std::vector<NodeId> roots = graph.saves;
  for (const AttentionSource& source : graph.sources) {
    roots.push_back(source.selection);
    for (const NodeId id : {source.bias, source.opened}) {
      if (id != kNoNode) roots.push_back(id);
    }
  }
  return roots;
}

std::vector<NodeId> roots_of(const FlowGraph& graph, Stage stage) {
  std::vector<NodeId> roots = roots_of(graph);
  std::erase_if(roots, [&](NodeId id) { return graph.nodes[size_t(id)].stage != stage; });
  return roots;
}

Cost cost_a_page(const FlowGraph& graph, const std::vector<NodeId>& roots) {
  const Schedule schedule(graph, roots);
  const auto work = [&](NodeId id) { return work_of(graph, graph.nodes[size_t(id)]); };
  Cost cost;
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    if (graph.nodes[id].stage == Stage::kCache) cost.work += work(NodeId(id));
    if (schedule.stored[id]) cost.numbers += elements_per_page(graph.nodes[id].shape);
  }
  for (const Schedule::Phase& phase : schedule.phases) {
    for (const auto* nodes : {&phase.once, &phase.pages, &phase.rows}) {
      for (const NodeId id : *nodes) cost.work += work(id);
    }
  }
  cost.work += kWorkOfRanking * double(scored_selections(graph).size());
  for (const Field& field : graph.fields) cost.numbers += elements_per_page(field.shape);
  for (const State& state : graph.states) cost.numbers += elements_per_page(state.shape);
  return cost;
}

}  // namespace sluice::oracle
