#include "agents/generation/flow_cost.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/device/pass_batch.h"
#include "scripting/graph/ops.h"

namespace sluice {
namespace {

double operations_of(const FlowGraph& graph, const Node& node) {
  constexpr double kSelection = 8;  // a page is looked at, compared and moved several times
  if (is_selection(node.op)) return kSelection;
  int64_t operations = elements_per_page(node.shape);
  for (const NodeId input : node.inputs) {
    operations = std::max(operations, elements_per_page(graph.nodes.at(static_cast<size_t>(input)).shape));
  }
  if (node.op == Op::kContract) {
    const Shape& from = graph.nodes.at(static_cast<size_t>(node.inputs.front())).shape;
    const auto axis = static_cast<size_t>(find_axis(from, node.attributes.axis));
    operations = std::max(operations, elements_per_page(node.shape) * from.at(axis).extent);
  }
  if (node.op == Op::kConv1d) operations *= static_cast<int64_t>(node.attributes.kernel.size());
  return static_cast<double>(operations);
}

bool is_for_each_page(const FlowGraph& graph, const Node& node) {
  if (has_axis(node.shape, Axis::kPage) || node.op == Op::kUnion) return true;
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&](NodeId input) { return has_axis(graph.nodes.at(static_cast<size_t>(input)).shape, Axis::kPage); });
}

}  // namespace

FlowCost cost_of(const FlowGraph& graph) {
  FlowCost cost;
  for (const Node& node : graph.nodes) {
    double& part = node.stage == Stage::kCache ? cost.cached_page : is_for_each_page(graph, node) ? cost.scored_page : cost.step;
    part += operations_of(graph, node);
  }
  // Of what stands for a page the key and the value are read by every head.
  for (const AttentionSource& source : graph.sources) {
    if (source.keys == "k") continue;
    for (const std::string& name : {source.keys, source.values}) {
      const Field* const field = graph.find_field(name);
      const Shape& shape = field != nullptr ? field->shape : graph.find_state(name)->shape;
      cost.scored_page += static_cast<double>(elements_per_page(shape)) * graph.geometry.group;
    }
  }
  return cost;
}

bool is_dear(const Plan& plan, const ModelConfig& config, const EngineOptions& options) {
  constexpr double kMostOfAPass = 1 << 30;                   // operations: a few tenths of a second on two cores
  constexpr double kMostOfASharedPass = 4.0 * kMostOfAPass;  // of one whose requests all have the same long prompt, which is rare
  const double heads = static_cast<double>(config.layers) * config.kv_heads;
  const double pool = static_cast<double>(options.pool_bytes) / (static_cast<double>(plan.layout.bytes) * heads);
  const double longest = std::min<double>(pool, pages_for(config.max_positions, plan.layout.page));
  const double written = options.max_batch + static_cast<double>(options.max_pass_tokens) / plan.layout.page;
  FlowCost cost;  // as if all layers ran the dearest of each part
  for (const Plan* program : plan.programs()) {
    const FlowCost own = cost_of(program->graph);
    cost.cached_page = std::max(cost.cached_page, own.cached_page);
    cost.scored_page = std::max(cost.scored_page, own.scored_page);
    cost.step = std::max(cost.step, own.step);
  }
  const auto of_a_pass = [&](double scored) {
    return heads * (cost.scored_page * scored + cost.step * options.max_batch + cost.cached_page * written);
  };
  const double shared = options.max_batch * longest;  // pages that a prefix shares are scored by each who has them
  return of_a_pass(std::min(pool, shared)) > kMostOfAPass || of_a_pass(shared) > kMostOfASharedPass;
}

}  // namespace sluice
