#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/report.h"
#include "agents/traces/attention_trace.h"
#include "agents/traces/dense_steps.h"
#include "agents/traces/layer_replay.h"
#include "kernels/device.h"

namespace sluice {

/// Judges flows on the attention of a trace's model, without its weights: every recorded layer runs the flow for the steps of
/// every window, in order. What dense attention does in these steps is computed once, for all flows.
class TraceJudge {
 public:
  /// `device` must outlive the judge. `threads` for what dense attention does; 0: all. Throws InputError for a trace whose
  /// attention is not finite.
  TraceJudge(Device& device, AttentionTrace trace, int threads);

  const AttentionTrace& trace() const { return trace_; }

  /// Traces the flow for the shape of the trace's model. Layers that the flow leaves dense count with all of their mass and
  /// pages, in the share that they have of the model's layers, whichever were recorded, and with the error that the flow's type
  /// of K and V makes. `asked`: what the flow is for the model that is asked and timed, null if there is none. Throws InputError
  /// or FlowError for a flow that cannot run on the trace's shape, or is another one there (difference_between).
  TraceResult judge(const FlowScript& script, const FlowGraph* asked = nullptr);
  /// What a device runs of the flow where it is judged. Throws what `judge` throws.
  std::vector<Plan> plans_of(const FlowScript& script) const;

 private:
  /// Of a program or pattern of the flow.
  struct WeighedPlan {
    Plan plan;
    double weight = 1;  // as many layers as have it
  };
  /// The flow for the shape of the trace's model.
  FlowGraph trace(const FlowScript& script) const;
  /// Takes the variants of `traced` out of it.
  std::vector<FlowGraph> programs_of(FlowGraph& traced) const;
  std::vector<WeighedPlan> weighed_plans(std::vector<FlowGraph> programs) const;
  /// Calls `take` for every step of a window's recorded layer, window after window.
  void replay(const Plan& plan, const std::function<void(size_t window, size_t layer, int step, const LayerStep& result)>& take);
  /// Of dense attention over K and V of the graph's type.
  double dense_error(const FlowGraph& traced);

  Device& device_;
  AttentionTrace trace_;
  std::vector<std::vector<DenseSteps>> dense_;  // by window and layer
};

}  // namespace sluice
