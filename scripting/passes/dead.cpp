#include <algorithm>

#include "scripting/passes/passes.h"
#include "scripting/passes/rewrite.h"

namespace sluice::passes {

namespace {

class Marker {
 public:
  explicit Marker(const FlowGraph& graph) : graph_(graph), live_(graph.nodes.size(), false) {}

  std::vector<bool> run() {
    for (const AttentionSource& source : graph_.sources) {
      mark(source.selection);
      mark(source.bias);
      mark(source.logits);
      mark(source.opened);
      for (const std::string& name : {source.keys, source.values}) {
        if (const Field* field = graph_.find_field(name)) mark(field->node);
        mark_saves(name);
      }
    }
    if (graph_.eviction) mark_saves(graph_.eviction->score);
    while (!pending_.empty()) {
      const Node& node = graph_.nodes[static_cast<size_t>(pending_.back())];
      pending_.pop_back();
      for (const NodeId input : node.inputs) mark(input);
      if (node.op == Op::kField) mark(graph_.find_field(node.attributes.field)->node);
      if (node.op == Op::kLoad) mark_saves(node.attributes.field);
    }
    return live_;
  }

 private:
  void mark(NodeId id) {
    if (id == kNoNode || live_[static_cast<size_t>(id)]) return;
    live_[static_cast<size_t>(id)] = true;
    pending_.push_back(id);
  }

  void mark_saves(const std::string& state) {
    for (const NodeId save : graph_.saves) {
      if (graph_.nodes[static_cast<size_t>(save)].attributes.field == state) mark(save);
    }
  }

  const FlowGraph& graph_;
  std::vector<bool> live_;
  std::vector<NodeId> pending_;
};

bool is_read(const FlowGraph& graph, Op by, const std::string& name) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [&](const Node& node) { return node.op == by && node.attributes.field == name; });
}

bool is_attended(const FlowGraph& graph, const std::string& name) {
  return std::any_of(graph.sources.begin(), graph.sources.end(),
                     [&](const AttentionSource& source) { return source.keys == name || source.values == name; });
}

}  // namespace

void remove_dead(FlowGraph& graph) {
  compact(graph, Marker(graph).run());
  std::erase_if(graph.fields,
                [&](const Field& field) { return !is_read(graph, Op::kField, field.name) && !is_attended(graph, field.name); });
  std::erase_if(graph.states, [&](const State& state) {
    const bool is_score = graph.eviction && graph.eviction->score == state.name;
    return !is_score && !is_read(graph, Op::kLoad, state.name) && !is_attended(graph, state.name);
  });
}

}  // namespace sluice::passes
