#pragma once

#include <utility>

#include "agents/client/harness_client.h"
#include "agents/repl/flow_server.h"

namespace sluice {

/// The server of a REPL session, behind its API. While it waits it tells a terminal on standard error how far the server is.
class ReplServer final : public repl::FlowServer {
 public:
  explicit ReplServer(HarnessClient client) : client_(std::move(client)) {}

  Receipt submit(const std::string& name, const std::string& script, const std::vector<int64_t>& parents) override;
  std::string wait(int64_t id, const repl::Style& style, const std::function<bool()>& interrupted) override;
  FlowScript script(int64_t id) override;

 private:
  HarnessClient client_;
};

}  // namespace sluice
