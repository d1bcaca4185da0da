#include "agents/evaluation/trace_runner.h"

#include "agents/evaluation/engine_runner.h"
#include "agents/evaluation/numerical.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

[[noreturn]] void refuse() { throw InternalError("a trace answers no questions"); }

}  // namespace

ModelConfig shape_of(const AttentionTrace& trace) {
  ModelConfig config;
  config.layers = trace.model_layers;
  config.query_heads = trace.query_heads();
  config.kv_heads = trace.kv_heads();
  config.head_dim = trace.head_dim();
  return config;
}

void TraceRunner::announce(std::span<const FlowScript> scripts) {
  announce_flows(scripts, shape_of(traces_.trace()), device_, nullptr);  // the model's shape is the trace's
}

Candidate TraceRunner::prepare(const FlowScript& script) { return prepare_flow(script, shape_of(traces_.trace()), device_); }

std::optional<std::string> TraceRunner::check_numerically(const Candidate& candidate) {
  return check_against_reference(device_, candidate.traced, candidate.plan);
}

int TraceRunner::batch_size(int /*tokens*/) const { refuse(); }

std::unique_ptr<PrefilledBatch> TraceRunner::prefill(const std::vector<JobDocument>& /*documents*/) { refuse(); }

std::vector<Generation> TraceRunner::decode(const PrefilledBatch& /*batch*/, const Plan* /*plan*/) { refuse(); }

TaskSpeed TraceRunner::measure(const PrefilledBatch& /*batch*/, const Plan& /*plan*/, const Answers& /*answers*/,
                               const SpeedOptions& /*options*/) {
  refuse();
}

}  // namespace sluice
