#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/evaluation/report.h"
#include "agents/flow_script.h"
#include "agents/step_timing.h"
#include "agents/tasks/task.h"
#include "host/engine.h"
#include "scripting/graph/plan.h"

namespace sluice {

/// A sample and how it is to be generated.
struct Job {
  Sample sample;
  SamplingOptions sampling;
};

/// Jobs whose prompts start with the same text, which is prefilled once.
using JobDocument = std::vector<Job>;

struct Generation {
  std::string text;
  bool ended = false;  // by the model itself
};

/// Prompts made ready: their common texts were prefilled with dense attention. Dense attention and all flows decode from it.
class PrefilledBatch {
 public:
  virtual ~PrefilledBatch() = default;
  /// Memory that it takes, about.
  virtual size_t bytes() const = 0;
};

struct SpeedOptions {
  static constexpr int kWarmSteps = 2;  // the first step touches fresh pages

  int batch = 8;
  int pairs = 12;
  int steps = 4;

  /// Tokens that every prompt is continued by: the model needs room for them after the prompt. Passes run ahead of what is timed.
  int generated() const { return kWarmSteps + 1 + pairs * (steps + kUntimedPasses) + 2; }
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
  /// Traces and compiles a flow for the model and the device. Throws InputError or FlowError.
  virtual Candidate prepare(const FlowScript& script) = 0;
  /// Compares the device with the float64 reference; what disagrees, or nothing.
  virtual std::optional<std::string> check_numerically(const Candidate& candidate) = 0;
  /// How many prompts of this length are prefilled together.
  virtual int batch_size(int tokens) const = 0;
  virtual std::unique_ptr<PrefilledBatch> prefill(const std::vector<JobDocument>& documents) = 0;
  /// A generation for each job, documents in order. `plan` null: dense attention.
  virtual std::vector<Generation> decode(const PrefilledBatch& batch, const Plan* plan) = 0;
  /// Times decode steps of the flow and of dense attention in turn, on copies of the first document of `batch`; fewer than
  /// `options.batch` where memory does not allow so many.
  virtual SpeedResult measure(const PrefilledBatch& batch, const Plan& plan, const SpeedOptions& options) = 0;
};

}  // namespace sluice
