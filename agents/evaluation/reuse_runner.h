#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/evaluation/prefilled.h"
#include "agents/evaluation/reuse_layout.h"
#include "agents/evaluation/runner.h"
#include "host/serving/engine.h"
#include "host/text/tokenizer.h"
#include "host/transformer/model.h"
#include "kernels/device.h"

namespace sluice {

/// Judges what flows compute again of copied text (flow.recompute): the parts of each document have stood in another order
/// before, their K and V are copied, and questions are answered from what the flow's rule makes of them. Dense attention computes
/// the whole prompt. Speed is that of the time to the first token. Owned by one thread, like the device.
class ReuseRunner final : public Runner {
 public:
  /// All must outlive the runner.
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
  /// Waits for quiet, then times the first token of prompts like those of the batch, but for their own first token, one at a
  /// time. `pages_read` is the share of the prompt's rows that are computed in the upper layers.
  TaskSpeed measure(const PrefilledBatch& prefilled, const Plan& plan, const Answers& answers,
                    const SpeedOptions& options) override;

 private:
  class Reusing;

  /// Does `work` with an engine that knows the segments of the batch. Flows whose decode steps are dense share it: of a prompt
  /// that is partly copied it keeps nothing that others would find.
  void with_engine(const PrefilledBatch& prefilled, const Plan& plan, const std::function<void(Engine&)>& work);

  Device& device_;
  const Model& model_;
  const Tokenizer& tokenizer_;
  const ReuseLayout layout_;
  std::unique_ptr<Reusing> reusing_;
};

}  // namespace sluice
