#pragma once

#include <memory>
#include <span>
#include <vector>

#include "host/serving/engine.h"
#include "host/serving/kv_cache.h"
#include "kernels/device.h"

namespace sluice {

/// The programs of an engine's flow that select something, ready for the device, and which of them each layer runs.
class LayerFlows {
 public:
  /// `plan` (null: dense) as the cache keeps its fields, without the layers that have a window. Throws FlowError if the device
  /// has no way to run a program.
  LayerFlows(Device& device, const ModelConfig& config, const Plan* plan, const EngineOptions& options, const KvCache& cache);

  /// Every layer is dense, but for what patterns leave out.
  bool empty() const { return flows_.empty(); }
  /// Null: the layer is dense.
  const CompiledFlow* of(int layer) const { return by_layer_[static_cast<size_t>(layer)]; }
  /// The same for all layers.
  std::span<const CompiledFlow* const> by_layer() const { return by_layer_; }
  std::span<const std::unique_ptr<CompiledFlow>> all() const { return flows_; }
  /// The first layer that runs one of them.
  int first_layer(const CompiledFlow& flow) const;
  /// Rows of a prompt, the last ones, that some program has computed whatever is known of them (FlowGraph::prompt_rows_wanted).
  int prompt_rows_wanted() const;
  FlowCounters counters() const;
  /// For one request; of each flow for as many pages as `pages` (its place among `all`) says. Null if none keeps anything.
  std::unique_ptr<RequestState> create_state(std::span<const int> pages) const;

 private:
  std::vector<std::unique_ptr<CompiledFlow>> flows_;
  std::vector<const CompiledFlow*> by_layer_;
};

}  // namespace sluice
