#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "agents/evaluation/flow_script.h"
#include "agents/repl/heat_map.h"

namespace sluice::repl {

/// A server that judges flows, as a session sees it. Every method throws InputError if the server refuses or does not answer.
class FlowServer {
 public:
  struct Receipt {
    int64_t id = 0;
    std::string text;  // lines for the user: the number, and where to look
  };

  FlowServer() = default;
  virtual ~FlowServer() = default;
  FlowServer(const FlowServer&) = delete;
  FlowServer& operator=(const FlowServer&) = delete;

  virtual Receipt submit(const std::string& name, const std::string& script, const std::vector<int64_t>& parents) = 0;
  /// What became of a submission, once it has ended or the user has interrupted.
  virtual std::string wait(int64_t id, const Style& style, const std::function<bool()>& interrupted) = 0;
  /// The script of a submission.
  virtual FlowScript script(int64_t id) = 0;
};

}  // namespace sluice::repl
