#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agents/http/http_server.h"
#include "agents/mcp/json_rpc.h"
#include "agents/mcp/protocol.h"
#include "agents/mcp/tool.h"

namespace sluice::mcp {

/// The Model Context Protocol over Streamable HTTP at /mcp: revision 2026-07-28, and those with a handshake before it. It keeps
/// nothing between requests and has no sessions; all that it offers are tools.
class McpServer {
 public:
  /// How long a caller has to wait before a call; for the first one of a request that only reads, the HTTP server has asked.
  using Limit = std::function<std::optional<std::chrono::seconds>(const HttpRequest& request, bool writes)>;

  /// `instructions` are for the model: what the server is for, and what to call first.
  McpServer(std::vector<Tool> tools, std::string instructions, Limit limit = {});

  /// Adds the one route, which answers POST. This must outlive the server's threads.
  void add_routes(HttpServer& server) const;
  HttpResponse handle(const HttpRequest& request) const;
  const std::vector<Tool>& tools() const { return tools_; }

 private:
  CallLimit limit_of(const HttpRequest& request) const;
  HttpResponse answer_message(const HttpRequest& request, const nlohmann::json& document, const ToolCall& call) const;
  HttpResponse answer_batch(const HttpRequest& request, const nlohmann::json& batch, const ToolCall& call) const;
  nlohmann::json batch_response(const HttpRequest& request, const nlohmann::json& document, const ToolCall& call) const;
  /// The result of a request. Throws RpcError, also for a fault of ours, so that its answer bears the id of the request.
  nlohmann::json result_of(const Message& message, Era era, const ToolCall& call) const;
  nlohmann::json method_result(const Message& message, Era era, const ToolCall& call) const;
  nlohmann::json call_tool_of(const Message& message, const ToolCall& call) const;
  nlohmann::json tool_list(const Message& message, Era era) const;

  std::vector<Tool> tools_;
  std::string instructions_;
  Limit limit_;
};

}  // namespace sluice::mcp
