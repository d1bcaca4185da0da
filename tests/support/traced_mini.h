#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "agents/evaluation/flow_files.h"
#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/trace_judge.h"
#include "agents/evaluation/trace_options.h"
#include "agents/traces/attention_trace.h"
#include "agents/traces/trace_recorder.h"
#include "host/serving/engine.h"
#include "host/transformer/model.h"
#include "kernels/device.h"
#include "scripting/graph/plan.h"

namespace sluice::testing {

/// The mini model on a device: a trace of what it reads, and what its engine says of the same steps.
class TracedMini {
 public:
  static constexpr int kTokens = 600;
  static constexpr int kSteps = 16;

  /// `device` must outlive it.
  explicit TracedMini(Device& device) : device_(device), model_(load_model(SLUICE_SOURCE_DIR "/host/models/mini", device)) {}

  const ModelConfig& config() const { return model_->config(); }

  AttentionTrace record(const std::vector<int>& layers) const {
    AttentionTrace trace;
    trace.model = "mini";
    trace.model_digest = "0";
    trace.model_layers = config().layers;
    trace.windows.push_back({"words", "1", 0, record_window(device_, *model_, words(), {layers, kTokens, kSteps}, [] {})});
    return trace;
  }

  /// Whether every shipped flow has the mass on a trace that the engine's own probe has in the same steps.
  void expect_masses_of_engine() const {
    for (const int layer : {0, 5}) {
      TraceJudge judge(device_, record({layer}), 0);
      for (const std::string& flow : shipped_flows()) {
        if (flow == "full") continue;  // an engine probes no layer that is dense
        const FlowScript script = read_flow(flow);
        // Which pages chance draws depends on the request's seed.
        EXPECT_NEAR(judge.judge(script).scores.mass.mean, mass_of_engine(script, layer), flow == "random" ? 0.05 : 1e-3)
            << flow << " in layer " << layer;
      }
    }
  }

 private:
  /// Mass in `layer` of an engine that decodes the same steps by the flow there, and densely elsewhere.
  double mass_of_engine(const FlowScript& script, int layer) const {
    FlowGraph graph = script.trace(trace_options(config()));
    graph.layers = LayerChoice{.rest_sparse = false, .sparse = {{layer, true}}};
    const Plan plan = compile(std::move(graph)).plan;
    EngineOptions options;
    options.pages = kTokens / plan.layout.page + 2;
    Engine engine(device_, *model_, &plan, options);
    const std::vector<int32_t> tokens = words();
    Request request;
    request.prompt.assign(tokens.begin(), tokens.end() - kSteps + 1);
    request.given.assign(tokens.end() - kSteps + 1, tokens.end());
    request.max_tokens = kSteps;
    request.ignore_eos = true;
    request.probe_every = 1;
    engine.submit(std::move(request));
    return engine.run_all().at(0).mass.at(static_cast<size_t>(layer));
  }

  /// Words of the model, in no order.
  static std::vector<int32_t> words() {
    std::vector<int32_t> tokens = {1};
    for (uint32_t at = 7; tokens.size() < kTokens; at = at * 1664525 + 1013904223) {
      tokens.push_back(static_cast<int32_t>(20 + (at >> 16) % 900));
    }
    return tokens;
  }

  Device& device_;
  std::unique_ptr<Model> model_;
};

}  // namespace sluice::testing
