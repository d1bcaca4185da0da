#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/report.h"
#include "agents/traces/attention_trace.h"
#include "agents/traces/dense_steps.h"
#include "kernels/device.h"

namespace sluice {

/// Judges flows on the attention of a trace's model, without its weights: every recorded layer runs the flow for the steps of
/// every window, in order. What dense attention does in these steps is computed once, for all flows.
class TraceJudge {
 public:
  /// `device` must outlive the judge. Throws InputError for a trace whose attention is not finite.
  TraceJudge(Device& device, AttentionTrace trace);

  const AttentionTrace& trace() const { return trace_; }

  /// Traces the flow for the shape of the trace's model. Layers that the flow leaves dense count with all of their mass and
  /// pages, in the share that they have of the model's layers, whichever were recorded. Throws InputError or FlowError for a flow
  /// that cannot run on that shape.
  TraceResult judge(const FlowScript& script);

 private:
  Device& device_;
  AttentionTrace trace_;
  std::vector<std::vector<DenseSteps>> dense_;  // by window and layer
};

}  // namespace sluice
