#include "host/serving/layer_flows.h"

#include <algorithm>
#include <utility>

#include "kernels/device/device_refusal.h"

namespace sluice {
namespace {

/// A program alone, as the cache keeps its fields.
Plan program_of(const Plan& plan, const ModelConfig& config, const EngineOptions& options, const KvCache& cache) {
  Plan own = options.cache == nullptr ? plan : with_field_pages(plan);
  own.variants.clear();
  own.graph.layers = without_windows(plan.graph.layers, config.layers, [&](int layer) { return cache.has_window(layer); });
  return own;
}

}  // namespace

LayerFlows::LayerFlows(Device& device, const ModelConfig& config, const Plan* plan, const EngineOptions& options,
                       const KvCache& cache)
    : by_layer_(static_cast<size_t>(config.layers), nullptr) {
  if (plan == nullptr) return;
  if (!plan->variants.empty()) require_device_takes(*plan, device.info().name);
  for (const Plan* each : plan->programs()) {
    if (each->graph.selection() == kNoNode) continue;
    const Plan program = program_of(*each, config, options, cache);
    if (!program.graph.layers.is_sparse_anywhere(config.layers)) continue;
    flows_.push_back(device.compile(program, config.layers, config.kv_heads));
    for (int layer = 0; layer < config.layers; ++layer) {
      if (program.graph.layers.is_sparse(layer, config.layers)) by_layer_[static_cast<size_t>(layer)] = flows_.back().get();
    }
  }
}

int LayerFlows::first_layer(const CompiledFlow& flow) const {
  return static_cast<int>(std::find(by_layer_.begin(), by_layer_.end(), &flow) - by_layer_.begin());
}

int LayerFlows::prompt_rows_wanted() const {
  int rows = 0;
  for (const auto& flow : flows_) rows = std::max(rows, flow->plan().graph.prompt_rows_wanted());
  return rows;
}

FlowCounters LayerFlows::counters() const {
  FlowCounters all;
  for (const auto& flow : flows_) {
    const FlowCounters own = flow->counters();
    all.pages_attended += own.pages_attended;
    all.pages_available += own.pages_available;
  }
  return all;
}

std::unique_ptr<RequestState> LayerFlows::create_state(std::span<const int> pages) const {
  std::vector<std::unique_ptr<RequestState>> parts;
  for (size_t i = 0; i < flows_.size(); ++i) {
    const auto program = static_cast<size_t>(flows_[i]->plan().program);
    if (parts.size() <= program) parts.resize(program + 1);
    parts[program] = flows_[i]->create_state(pages[i]);
  }
  return join_states(std::move(parts));
}

}  // namespace sluice
