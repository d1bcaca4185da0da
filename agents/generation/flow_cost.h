#pragma once

#include "host/serving/engine.h"
#include "host/transformer/model.h"
#include "scripting/graph/plan.h"

namespace sluice {

/// Operations on numbers, or so, that a flow takes in one layer and KV head.
struct FlowCost {
  double scored_page = 0;  // for each page that a decode step scores
  double step = 0;         // for each decode step, however many pages there are
  double cached_page = 0;  // for each page whose fields are computed: those that a pass writes to
};

FlowCost cost_of(const FlowGraph& graph);

/// Whether a pass of such an engine may take seconds on a CPU.
bool is_dear(const Plan& plan, const ModelConfig& config, const EngineOptions& options);

}  // namespace sluice
