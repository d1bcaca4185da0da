#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "agents/generation/engine_options.h"
#include "agents/generation/flow_engine.h"
#include "agents/generation/metrics.h"
#include "host/transformer/model.h"
#include "kernels/device.h"
#include "scripting/graph/plan.h"

namespace sluice {

/// Makes engines of flows: on the device that they share, or, on a CPU, of a flow whose passes may take seconds on one of its own
/// (`DearEngine`). What it refers to, and itself, must outlive them.
class EngineMaker {
 public:
  /// `changed` is called by engines that run themselves, in their threads, when tasks have ended or they have failed.
  EngineMaker(const GenerationOptions& options, Device& device, const Model& model, GenerationMetrics& metrics,
              std::function<void()> changed);

  /// An engine for the flow of `live`; `engines_to_come`: with it. Throws FlowError if the device cannot run the flow,
  /// HttpProblem if the server lacks what it takes.
  std::unique_ptr<FlowEngine> make(const LiveTask& live, int engines_to_come);
  /// Whether passes of `plan` may take so long that they are to hold up nobody.
  bool is_dear(const Plan& plan) const;
  /// Requests that an engine runs at once.
  int max_batch() const;

 private:
  /// The cache that engines of the flow share; null if no other flow has room for its fields in it.
  std::shared_ptr<KvCache> shared_cache(const Plan* plan, const EngineOptions& engine);

  const GenerationOptions& options_;
  Device& device_;
  const Model& model_;
  GenerationMetrics& metrics_;
  const std::function<void()> changed_;
  /// By tokens and type of a page. They stay, so that what is known of prompts outlives engines.
  std::map<std::pair<int, DataType>, std::shared_ptr<KvCache>> caches_;
};

}  // namespace sluice
