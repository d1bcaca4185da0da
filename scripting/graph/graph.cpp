#include "scripting/graph/graph.h"

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
