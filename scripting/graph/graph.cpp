#include "scripting/graph/graph.h"

#include <algorithm>

namespace sluice {

bool LayerChoice::is_sparse_anywhere(int layers) const {
  for (int layer = 0; layer < layers; ++layer) {
    if (is_sparse(layer, layers)) return true;
  }
  return false;
}

bool LayerChoice::is_sparse(int layer, int layers) const {
  if (const auto exact = sparse.find(layer); exact != sparse.end()) return exact->second;
  if (const auto from_end = sparse.find(layer - layers); from_end != sparse.end()) return from_end->second;
  return rest_sparse;
}

const Field* FlowGraph::find_field(const std::string& field) const {
  for (const Field& known : fields) {
    if (known.name == field) return &known;
  }
  return nullptr;
}

bool FlowGraph::saves_in(Stage stage) const {
  return std::any_of(saves.begin(), saves.end(), [&](NodeId save) { return nodes[static_cast<size_t>(save)].stage == stage; });
}

bool FlowGraph::reads_mass() const {
  return std::any_of(nodes.begin(), nodes.end(), [](const Node& node) { return node.op == Op::kMass; });
}

int pages_behind_tail(int last, int tokens, int page) { return std::max(0, tokens / page + 1 - last); }

const FlowGraph* FlowGraph::program_of(int layer, int count) const {
  if (layers.is_sparse(layer, count)) return this;
  const auto found =
      std::find_if(variants.begin(), variants.end(), [&](const FlowGraph& each) { return each.layers.is_sparse(layer, count); });
  return found == variants.end() ? nullptr : &*found;
}

bool FlowGraph::selects_tokens() const {
  return std::any_of(nodes.begin(), nodes.end(), [](const Node& node) { return node.op == Op::kTopKTokens; });
}

int FlowGraph::prompt_rows_wanted() const {
  if (!saves_in(Stage::kAfter)) return 0;
  return reads_mass() ? mass_rows : std::min(mass_rows, 1);  // the query of the last row, at least
}

void FlowGraph::attend_to(NodeId selected) {
  sources.clear();
  if (selected == kNoNode) return;
  sources.emplace_back();
  sources.front().selection = selected;
}

const State* FlowGraph::find_state(const std::string& state) const {
  for (const State& known : states) {
    if (known.name == state) return &known;
  }
  return nullptr;
}

}  // namespace sluice
