#include "agents/evaluation/same_flow.h"

#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "scripting/graph/recompute.h"
#include "scripting/passes/passes.h"

namespace sluice {
namespace {

std::vector<std::pair<std::string, DataType>> fields_of(const FlowGraph& graph) {
  std::vector<std::pair<std::string, DataType>> fields;
  for (const Field& field : graph.fields) fields.emplace_back(field.name, field.type);
  return fields;
}

std::vector<std::string> states_of(const FlowGraph& graph) {
  std::vector<std::string> states;
  for (const State& state : graph.states) states.push_back(state.name);
  return states;
}

/// What sources attend to: the entries, of which pages, whether with a bias, whether tokens share their weights, and groups.
using SourceKind = std::tuple<std::string, std::string, bool, bool, bool, int, bool>;
std::set<SourceKind> sources_of(const FlowGraph& graph) {
  std::set<SourceKind> sources;
  for (const AttentionSource& source : graph.sources) {
    sources.emplace(source.keys, source.values, source.others, source.bias != kNoNode, source.shares, source.group_pages,
                    source.opened != kNoNode);
  }
  return sources;
}

std::vector<std::optional<Pattern>> beside_of(const FlowGraph& graph) {
  std::vector<std::optional<Pattern>> beside;
  for (const AttentionSource& source : graph.sources) beside.push_back(source.beside);
  return beside;
}

/// Those that cost something or read something: how values of a page are put together may follow the shape.
std::set<std::pair<Stage, Op>> operators_of(const FlowGraph& graph) {
  std::set<std::pair<Stage, Op>> operators;
  for (const Node& node : graph.nodes) {
    const bool is_cheap = (node.op >= Op::kAdd && node.op <= Op::kWhere) || node.op == Op::kConstant || node.op == Op::kFill ||
                          node.op == Op::kReshape || node.op == Op::kTranspose || node.op == Op::kMaskSlice ||
                          node.op == Op::kUnion;
    if (!is_cheap) operators.emplace(node.stage, node.op);
  }
  return operators;
}

/// Without what no device would compute: it may be there for show.
FlowGraph used_of(FlowGraph graph) {
  passes::remove_dead(graph);
  return graph;
}

}  // namespace

std::optional<std::string> difference_between(const FlowGraph& first_traced, const FlowGraph& second_traced) {
  const FlowGraph first = used_of(first_traced);
  const FlowGraph second = used_of(second_traced);
  if (first.geometry.page != second.geometry.page) return "its pages have another size";
  if (first.geometry.kv != second.geometry.kv) return "its K and V are of another type";
  if (first.layers != second.layers) return "it names other layers";
  if (first.patterns != second.patterns) return "it has other patterns";
  if (beside_of(first) != beside_of(second)) return "it has other tokens beside what it selects";
  if (fields_of(first) != fields_of(second)) return "it caches other fields";
  if (states_of(first) != states_of(second)) return "it keeps other states";
  if (sources_of(first) != sources_of(second)) return "it attends to other entries";
  if (operators_of(first) != operators_of(second)) return "it computes with other operators";
  const auto kind_of = [](const std::optional<Eviction>& eviction) {
    return !eviction ? 0 : 1 + (eviction->chunk == 0 ? 1 : 0) + (eviction->keep ? 2 : 0);
  };
  if (kind_of(first.eviction) != kind_of(second.eviction)) return "it evicts other tokens";
  if (first.variants.size() != second.variants.size()) return "it has another number of variants";
  for (size_t i = 0; i < first.variants.size(); ++i) {
    if (const auto difference = difference_between(first.variants[i], second.variants[i]))
      return "in variant " + first.variants[i].variant + " " + *difference;
  }
  const auto rule_of = [](const FlowGraph& graph) {
    return graph.recompute == nullptr ? -1 : static_cast<int>(graph.recompute->kind);
  };
  if (rule_of(first) != rule_of(second)) return "it has another rule for what is computed again";
  if (first.recompute != nullptr && first.recompute->kind == Recompute::Kind::kSelected) {
    if (first.recompute->layer != second.recompute->layer || first.recompute->rows != second.recompute->rows)
      return "it chooses what is computed again by another layer, or other rows";
    if (const auto difference = difference_between(first.recompute->graph, second.recompute->graph))
      return "in flow.recompute " + *difference;
  }
  if (first.prompt_rows_wanted() != second.prompt_rows_wanted()) return "it sums what other rows of a prompt give";
  return std::nullopt;
}

}  // namespace sluice
