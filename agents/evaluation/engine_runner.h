#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agents/evaluation/prefilled.h"
#include "agents/evaluation/runner.h"
#include "agents/evaluation/trace_judge.h"
#include "host/serving/engine.h"
#include "host/text/tokenizer.h"
#include "host/transformer/model.h"
#include "kernels/device.h"

namespace sluice {

/// Traces a flow for a model and compiles it for the device, which then refuses it nowhere else. Throws InputError or FlowError.
Candidate prepare_flow(const FlowScript& script, const ModelConfig& config, Device& device);
/// What prepare_flow makes of each script for a model, and `traces` (or null) for its own, is compiled ahead where that takes
/// long.
void announce_flows(std::span<const FlowScript> scripts, const ModelConfig& config, Device& device, const TraceJudge* traces);

/// Runs flows and dense attention through the serving loop. Owned by one thread, like the device.
class EngineRunner : public Runner {
 public:
  /// All must outlive the runner. `traces` may be null.
  EngineRunner(Device& device, const Model& model, const Tokenizer& tokenizer, TraceJudge* traces = nullptr);

  void announce(std::span<const FlowScript> scripts) override;
  Candidate prepare(const FlowScript& script) override;
  std::optional<std::string> check_numerically(const Candidate& candidate) override;
  std::optional<TraceResult> judge_on_traces(const FlowScript& script, const Candidate& candidate) override;
  int batch_size(int tokens) const override;
  std::unique_ptr<PrefilledBatch> prefill(const std::vector<JobDocument>& documents) override;
  std::vector<Generation> decode(const PrefilledBatch& prefilled, const Plan* plan) override;
  TaskSpeed measure(const PrefilledBatch& prefilled, const Plan& plan, const Answers& answers,
                    const SpeedOptions& options) override;
  /// Gives up what it keeps for prompts that begin as the last ones did.
  void forget() {
    known_.forget();
    own_ = {};
  }

 private:
  /// As `plan` finds it: dense attention has prefilled it, or the flow's patterns.
  const EngineBatch& batch_for(const PrefilledBatch& prefilled, const Plan* plan);

  Device& device_;
  const Model& model_;
  const Tokenizer& tokenizer_;
  TraceJudge* traces_;
  const BatchRoom room_;
  KnownBeginnings known_;

  /// The last batch that was prefilled under a flow's patterns.
  struct OwnBatch {
    const EngineBatch* of = nullptr;
    std::string plan;
    EngineBatch batch;
  };
  OwnBatch own_;
};

}  // namespace sluice
