#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/report.h"
#include "agents/tasks/task.h"
#include "host/serving/engine.h"
#include "scripting/graph/plan.h"

namespace sluice {

/// A sample and how it is to be generated.
struct Job {
  Sample sample;
  SamplingOptions sampling;
  Occasion occasion = Occasion::kOneText;  // the same in all of a document
};

/// Jobs whose prompts start with the same text, which is prefilled once.
using JobDocument = std::vector<Job>;

struct Generation {
  std::string text;
  bool ended = false;                         // by the model itself
  std::vector<int32_t> tokens;                // as far as they were generated: an answer that is wrong already need not go on
  std::vector<float> log_probabilities = {};  // of the tokens that were given (Sample::given)

  /// Of the first `count` of these, together.
  double log_probability(size_t count = SIZE_MAX) const {
    const auto end = log_probabilities.begin() + static_cast<ptrdiff_t>(std::min(count, log_probabilities.size()));
    return std::accumulate(log_probabilities.begin(), end, 0.0);
  }
};

/// Prompts made ready: their common texts were prefilled with dense attention. Dense attention and all flows decode from it, but
/// for flows that are a pattern, which prefill them anew.
class PrefilledBatch {
 public:
  virtual ~PrefilledBatch() = default;
  /// Memory that it takes, about.
  virtual size_t bytes() const = 0;
};

struct SpeedOptions {
  int batch = 8;
  int pairs = 2;  // of a task whose questions are answered soon; of others fewer
  int least = 1;
  double patience = 0;  // seconds to wait at most for others to leave enough cores idle
};

/// What the prompts of a batch were answered with, in their order.
struct Answers {
  const std::vector<Generation>& dense;
  const std::vector<Generation>* flow = nullptr;  // null: the flow was not asked
};

/// A flow that may run: the graph as the script described it, and the plan that passes made of it.
struct Candidate {
  FlowGraph traced;
  Plan plan;
};

/// What the cascade needs of a model on a device. One implementation runs the engine; tests put a table in its place.
class Runner {
 public:
  virtual ~Runner() = default;
  /// These come to `prepare` next, one by one: what takes long in it may be done for all of them at once.
  virtual void announce(std::span<const FlowScript> /*scripts*/) {}
  /// Traces and compiles a flow for the model and the device. Throws InputError or FlowError.
  virtual Candidate prepare(const FlowScript& script) = 0;
  /// Compares the device with the float64 reference; what disagrees, or nothing.
  virtual std::optional<std::string> check_numerically(const Candidate& candidate) = 0;
  /// What the flow keeps of a real model's attention; nothing where there is no trace. `candidate` is what `prepare` made of the
  /// script. Throws InputError or FlowError for a flow that cannot run on the shape of that model, or is another one there.
  virtual std::optional<TraceResult> judge_on_traces(const FlowScript& script, const Candidate& candidate) = 0;
  /// How many prompts of this length are prefilled together.
  virtual int batch_size(int tokens) const = 0;
  virtual std::unique_ptr<PrefilledBatch> prefill(const std::vector<JobDocument>& documents) = 0;
  /// A generation for each job, documents in order. `plan` null: dense attention.
  virtual std::vector<Generation> decode(const PrefilledBatch& batch, const Plan* plan) = 0;
  /// Times questions of the batch, chosen by chance: the same requests once more, so that nothing in them tells
  /// a flow that the clock looks. Fewer than `options.batch` where there are not so many, or memory does not allow it. Names of
  /// task and stage are left empty.
  virtual TaskSpeed measure(const PrefilledBatch& batch, const Plan& plan, const Answers& answers,
                            const SpeedOptions& options) = 0;
};

}  // namespace sluice
