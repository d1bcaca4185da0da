#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/evaluation/flow_script.h"
#include "agents/generation/generation_api.h"
#include "agents/harness/harness.h"
#include "agents/harness/submitted_flows.h"
#include "agents/http/http_server.h"
#include "agents/http/rate_limiter.h"
#include "agents/http/stop_signal.h"
#include "agents/mcp/mcp_server.h"

namespace spdlog {
class logger;
}

namespace sluice::cli {

struct ServeOptions {
  std::vector<std::string> flows;
  int pool_mib = 0;
  bool quiet = false;
  bool open_completions = false;  // with a data folder, too
  HarnessOptions harness;
  HttpServerOptions http;
  RateLimits rates;
  GenerationOptions generation;
};

/// The server of `sluice serve`, from its options to its end. Members are in the order in which they are made: each may use those
/// before it as long as it lives, and ends before them. Of harness and server, which begin later than they are there, `run` says
/// when.
class ServerLife {
 public:
  /// Finds out whatever could be refused, loads the model, takes the address, and only then makes a data folder where there was
  /// none: where model or address cannot be had none is left. Nothing is served or judged yet. Must be called before there are
  /// other threads. Throws InputError, FlowError.
  explicit ServerLife(ServeOptions options);
  ServerLife(const ServerLife&) = delete;
  ServerLife& operator=(const ServerLife&) = delete;

  /// Judges and serves, says where, and stops at the first SIGINT or SIGTERM. Throws InternalError if it stopped because the
  /// server lost its socket.
  void run();

 private:
  bool has_folder() const { return !options_.harness.folder.empty(); }

  // What members are made of.

  std::unique_ptr<SubmittedFlows> submitted_flows() const;
  std::unique_ptr<Harness> existing_harness();
  GenerationOptions generation_options();
  HttpServerOptions http_options();

  // The steps of a life.

  void add_routes();
  void start();
  /// From the outside to the inside: first nobody comes in any more and who is in has a second, then engines end what they
  /// generate. The rest ends with its members: the API joins its threads, the harness kills its workers, whose submissions go
  /// back to the queue, and writes its Git repository once more.
  void stop();

  const StopSignal signal_;     // before there are other threads, which inherit it
  const ServeOptions options_;  // what was left open is filled in
  const std::map<std::string, FlowScript> scripts_;
  const std::unique_ptr<SubmittedFlows> submitted_;  // with a data folder
  const std::shared_ptr<spdlog::logger> log_;
  std::atomic<bool> lost_ = false;    // the server's socket
  std::unique_ptr<Harness> harness_;  // with a data folder; before the model if that is there already
  RateLimiter limiter_;
  GenerationApi api_;                  // uses scripts, submitted flows, harness
  std::optional<mcp::McpServer> mcp_;  // with a data folder; uses harness, limiter
  HttpServer server_;                  // uses all: its routes are theirs
};

}  // namespace sluice::cli
