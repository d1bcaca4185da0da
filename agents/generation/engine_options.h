#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "host/serving/engine.h"
#include "scripting/lua/trace.h"

namespace spdlog {
class logger;
}

namespace sluice {

struct GenerationOptions {
  std::string model;  // its path
  std::string device = "cpu";
  int threads = 0;                     // of the CPU; 0: all cores
  bool token_for_completions = false;  // whether to generate needs a token
  bool of_agents = false;              // requests bear tokens, and administrators alone freeze texts
  /// Whether a flow that is not on the list may be used. Throws HttpProblem if not; null: none may. Called in the threads of
  /// connections.
  std::function<void(const std::string& name)> check_flow;
  /// The graph of a flow that a request names. Throws InputError for one that is not offered. Called in the threads of
  /// connections.
  std::function<FlowGraph(const std::string& name, const TraceOptions& options)> read_flow;
  /// Why the server should get no requests at the moment, besides what the engines know; "" or null: nothing. Asked for
  /// /health/ready, in the threads of connections.
  std::function<std::string()> trouble;
  int batch = 0;                        // requests that run at once, of one flow; 0: 16, on CUDA 64
  int chunk = 0;                        // rows of a pass; 0: 256, on CUDA 2048
  size_t pool_bytes = 0;                // of one pool; 0: 256 MiB, on CUDA an equal part of the memory that is free
  std::optional<DataType> kv;           // type of K and V; none: the flow's, for dense attention bf16
  bool shares_cache = false;            // engines of flows with pages of one size and type share a pool
  bool shares_device = false;           // with a process that judges, to which memory is left where pools take what is free
  int most_engines = 4;                 // one for each flow in use, dense included
  std::optional<int> flows;             // that there are, dense attention not counted; nothing: any number
  int most_requests = 256;              // running and waiting
  std::chrono::seconds idle{300};       // after which an engine without requests is dropped
  std::shared_ptr<spdlog::logger> log;  // null: none
};

/// The memory of a device when an engine is to be made.
struct EngineRoom {
  size_t free_bytes = 0;
  size_t weight_bytes = 0;   // of the model, which is there already
  int engines_to_come = 1;   // this one included, if there will be as many as there may be
  bool keeps_state = false;  // its flow
};

/// What an engine gets.
EngineOptions options_of_engine(const GenerationOptions& options, const DeviceInfo& device, const EngineRoom& room);

}  // namespace sluice
