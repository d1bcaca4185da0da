#pragma once

#include <optional>
#include <utility>

#include "agents/client/harness_client.h"
#include "agents/repl/flow_server.h"

namespace sluice {

/// The server of a REPL session, behind its API. An address that is none is told when it is first used. While it waits it tells a
/// terminal on standard error how far the server is.
class ReplServer final : public repl::FlowServer {
 public:
  explicit ReplServer(ServerAccess access) : access_(std::move(access)) {}

  Receipt submit(const std::string& name, const std::string& script, const std::vector<int64_t>& parents) override;
  std::string wait(int64_t id, const repl::Style& style, const std::function<bool()>& interrupted) override;
  FlowScript script(int64_t id) override;

 private:
  HarnessClient& client();

  ServerAccess access_;
  std::optional<HarnessClient> client_;  // made at the first use
};

}  // namespace sluice
