#pragma once

#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agents/evaluation/flow_script.h"
#include "host/transformer/model.h"
#include "kernels/device.h"
#include "store/records.h"

namespace sluice {

/// What a script turns out to be.
struct FlowInspection {
  std::string name;
  int page = 0;             // tokens
  nlohmann::json graph;     // as the script describes it (`graph_document`)
  std::string plan;         // what passes made of it, and what it should cost, as `sluice plan` prints it
  std::string fingerprint;  // `flow_fingerprint`, for the model and for the trace that judges
};

/// {"name", "page", "kv", "nodes": [{"id", "op", "stage", "type", "shape", "inputs", "text", "line"}], "fields", "states",
/// "selection"}. `type` is that of a tensor's numbers; "selection" for pages, "effect" for what only has an effect.
nlohmann::json graph_document(const FlowGraph& graph);

/// {"name", "page", "graph", "plan"}.
nlohmann::json document_of(const FlowInspection& inspection);
/// graph.json and plan.txt.
std::vector<store::Artifact> artifacts_of(const FlowInspection& inspection);

/// What one script is for each shape of a model that it is judged for; nothing where it refuses that shape.
using TracedShapes = std::vector<std::pair<std::optional<FlowGraph>, TraceOptions>>;

/// BLAKE2b of what a flow computes on a device, for each of the shapes (scripting/passes/canonical.h): scripts that differ by a
/// comment, by names or by what nothing reads have the same.
std::string flow_fingerprint(const TracedShapes& traced, const std::string& device);

/// Looks at scripts for one model on one device, without running them. Any number of threads may use it: tracing goes side by
/// side, the device compiles for one after the other.
class FlowInspector {
 public:
  /// `model` is a path, `device` "cpu" or "cuda". Throws InputError for what is not there.
  FlowInspector(const std::string& model, std::string device);

  /// Traced in the sandbox, compiled for the device. Throws FlowError, InputError.
  FlowInspection inspect(const FlowScript& script);

 private:
  const std::string model_;  // its name
  const ModelConfig config_;
  std::optional<TraceOptions> replayed_;  // of the trace on which judges replay flows, if there is one
  const std::string device_name_;
  std::mutex mutex_;
  const std::unique_ptr<Device> device_;  // with the lock held
};

}  // namespace sluice
