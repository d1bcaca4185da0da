#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/evaluation/prefilled.h"
#include "agents/evaluation/reuse_layout.h"
#include "agents/evaluation/runner.h"
#include "host/text/tokenizer.h"
#include "host/transformer/model.h"
#include "kernels/device.h"
#include "kernels/device/recompute_rule.h"

namespace sluice {

/// Judges what flows compute again of copied text (flow.recompute): the parts of each document have stood in another order
/// before, their K and V are copied, and questions are answered from what the flow's rule makes of them. Dense attention computes
/// the whole prompt. Speed is that of the time to the first token. Owned by one thread, like the device.
class ReuseRunner final : public Runner {
 public:
  /// All must outlive the runner. Throws InputError on a device that does not reuse segments.
  ReuseRunner(Device& device, const Model& model, const Tokenizer& tokenizer, const ReuseLayout& layout);
  ~ReuseRunner() override;

  /// Throws InputError for a flow that does not say what is computed again.
  Candidate prepare(const FlowScript& script) override;
  /// The flow, as in other suites, and its rule.
  std::optional<std::string> check_numerically(const Candidate& candidate) override;
  /// Nothing: traces have no copies.
  std::optional<TraceResult> judge_on_traces(const FlowScript& script, const Candidate& candidate) override;
  /// One: a document is known as long as its questions are asked.
  int batch_size(int tokens) const override;
  std::unique_ptr<PrefilledBatch> prefill(const std::vector<JobDocument>& documents) override;
  std::vector<Generation> decode(const PrefilledBatch& prefilled, const Plan* plan) override;
  /// `pages_read` is the share of the prompt's rows that are computed in the upper layers.
  TaskSpeed measure(const PrefilledBatch& prefilled, const Plan& plan, const Answers& answers,
                    const SpeedOptions& options) override;

 private:
  class Reusing;

  /// One that knows the segments of the batch. Flows whose decode steps are dense share it: of a prompt that is partly copied it
  /// keeps nothing that others would find, but for what stands before the first copy.
  Engine& engine_for(const PrefilledBatch& prefilled, const Plan& plan);
  /// Prompts of which everything was computed are known to it as beginnings, which others must not find.
  void forget_exact(const RecomputeRule& rule);

  Device& device_;
  const Model& model_;
  const Tokenizer& tokenizer_;
  const ReuseLayout layout_;
  std::unique_ptr<Reusing> reusing_;
};

}  // namespace sluice
