#pragma once

#include "agents/evaluation/runner.h"
#include "agents/evaluation/trace_judge.h"
#include "host/transformer/model.h"
#include "kernels/device.h"

namespace sluice {

/// The shape of the model that was recorded.
ModelConfig shape_of(const AttentionTrace& trace);

/// A runner that has the attention of a model and no weights: it checks flows and judges them on that, and answers no question.
class TraceRunner final : public Runner {
 public:
  /// Both must outlive the runner.
  TraceRunner(Device& device, TraceJudge& traces) : device_(device), traces_(traces) {}

  void announce(std::span<const FlowScript> scripts) override;
  Candidate prepare(const FlowScript& script) override;
  std::optional<std::string> check_numerically(const Candidate& candidate) override;
  std::optional<TraceResult> judge_on_traces(const FlowScript& script, const Candidate& /*candidate*/) override {
    return traces_.judge(script);
  }

  // There are no questions; all throw InternalError.
  int batch_size(int tokens) const override;
  std::unique_ptr<PrefilledBatch> prefill(const std::vector<JobDocument>& documents) override;
  std::vector<Generation> decode(const PrefilledBatch& batch, const Plan* plan) override;
  TaskSpeed measure(const PrefilledBatch& batch, const Plan& plan, const Answers& answers, const SpeedOptions& options) override;

 private:
  Device& device_;
  TraceJudge& traces_;
};

}  // namespace sluice
