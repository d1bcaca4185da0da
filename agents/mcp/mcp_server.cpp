#include "agents/mcp/mcp_server.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "agents/http/caller.h"
#include "agents/http/http_problem.h"
#include "agents/mcp/lifecycle.h"
#include "scripting/base/json_object.h"

namespace sluice::mcp {
namespace {

using nlohmann::json;

// Codex gives a call 60 s, and so do proxies.
constexpr std::chrono::seconds kMostWait{50};
constexpr size_t kMostBatch = 32;
constexpr size_t kMostBatchBytes = size_t{512} << 10;  // after which the rest of a batch is not answered

HttpResponse answer(const json& document, int status = 200) {
  HttpResponse response;
  response.status = status;
  response.body = json_text(document);
  return response;
}

HttpResponse accepted() {
  HttpResponse response;
  response.status = 202;
  return response;
}

/// Clients must accept JSON and event streams; all that is answered here but `subscriptions/listen` is JSON.
void check_accept(const HttpRequest& request) {
  const std::string accept = request.header("Accept").value_or("*/*");
  for (const char* type : {"application/json", "application/*", "*/*"}) {
    if (accept.find(type) != std::string::npos) return;
  }
  throw RpcError(kInvalidRequest, 406, "Accept must list application/json and text/event-stream");
}

/// What the server itself refuses before a message is read: a token, a size, a media type.
HttpResponse refusal(const HttpProblem& problem) {
  const ErrorCode code = problem.status() >= 500 ? kInternalError : kInvalidRequest;
  return answer(error_response(nullptr, RpcError(code, problem.status(), problem.what(), problem.document())), problem.status());
}

/// What is told of a message for whose answer a batch has no room.
json full_batch_response(const json& document) {
  const json id = readable_id(document);
  if (id.is_null()) return nullptr;
  return error_response(
      id, RpcError(kInvalidRequest, 200, "the answer to this batch is too long; send this message again by itself"));
}

RpcError unknown_method(const Message& message, Era era) {
  return {kMethodNotFound, era == Era::kModern ? 404 : 200, fmt::format("Method not found: {}", excerpt(message.method))};
}

}  // namespace

McpServer::McpServer(std::vector<Tool> tools, std::string instructions, Limit limit)
    : tools_(std::move(tools)), instructions_(std::move(instructions)), limit_(std::move(limit)) {}

void McpServer::add_routes(HttpServer& server) const {
  HttpRoute route;
  route.method = "POST";
  route.pattern = "/mcp";
  route.operation = "postMcpMessage";
  route.summary = "A message of the Model Context Protocol (Streamable HTTP, 2026-07-28 and earlier)";
  route.access = Access::kRead;  // tools that write ask for a token themselves, in words that reach the model
  route.consumes = {"application/json"};
  route.body_schema = {{"description", "A JSON-RPC 2.0 message; in 2025-03-26 also an array of them"}};
  route.answers = {{200, "A JSON-RPC response"},
                   {202, "A notification was taken", ""},
                   {400, "A JSON-RPC error: no JSON, no message, headers and body that disagree, an unknown version"},
                   {404, "A JSON-RPC error: an unknown method (2026-07-28)"}};
  route.refuse = refusal;
  route.handle = [this](const HttpRequest& request) { return handle(request); };
  server.add(std::move(route));
}

HttpResponse McpServer::handle(const HttpRequest& request) const {
  json document;
  try {
    check_accept(request);
    document = parse_body(request.body);
    const ToolCall call = {.identity = request.identity,
                           .caller = caller_of(request),
                           .sent_token = request.header("Authorization").has_value(),
                           .is_wanted = request.is_wanted,
                           .deadline = std::chrono::steady_clock::now() + kMostWait,
                           .limit = limit_of(request)};
    return document.is_array() ? answer_batch(request, document, call) : answer_message(request, document, call);
  } catch (const RpcError& error) {
    return answer(error_response(readable_id(document), error), error.status());
  }
}

CallLimit McpServer::limit_of(const HttpRequest& request) const {
  if (!limit_) return {};
  return [this, &request](bool writes) { return limit_(request, writes); };
}

HttpResponse McpServer::answer_message(const HttpRequest& request, const json& document, const ToolCall& call) const {
  const Message message = parse_message(document);
  const Era era = era_of(request, message);
  if (message.kind != MessageKind::kRequest) return accepted();
  if (era == Era::kModern && message.method == "subscriptions/listen") return listen_response(message);
  return answer(result_response(message.id, result_of(message, era, call)));
}

HttpResponse McpServer::answer_batch(const HttpRequest& request, const json& batch, const ToolCall& call) const {
  check_batch(request);
  if (batch.empty() || batch.size() > kMostBatch) {
    throw RpcError(kInvalidRequest, 400, fmt::format("a batch has 1 to {} messages", kMostBatch));
  }
  std::string responses;  // as text, which takes a fraction of the memory
  for (const json& document : batch) {
    if (!call.is_wanted()) break;
    const bool is_full = responses.size() > kMostBatchBytes;
    const json response = is_full ? full_batch_response(document) : batch_response(request, document, call);
    if (!response.is_null()) responses += (responses.empty() ? "[" : ",") + json_text(response);
  }
  if (responses.empty()) return accepted();
  HttpResponse response;
  response.body = responses + "]";
  return response;
}

/// Null for what is not answered.
json McpServer::batch_response(const HttpRequest& request, const json& document, const ToolCall& call) const {
  try {
    const Message message = parse_message(document);
    const Era era = era_of(request, message);
    if (era == Era::kModern) throw RpcError(kInvalidRequest, 400, fmt::format("{} has no batches", kModernVersion));
    if (message.method == "initialize") throw RpcError(kInvalidRequest, 400, "initialize must not be part of a batch");
    if (message.kind != MessageKind::kRequest) return nullptr;
    if (const auto wait = call.limit ? call.limit(false) : std::nullopt) {
      throw RpcError(kInvalidRequest, 429, fmt::format("too many requests; try again in {} s", wait->count()));
    }
    return result_response(message.id, result_of(message, era, call));
  } catch (const RpcError& error) {
    return error_response(readable_id(document), error);
  }
}

json McpServer::result_of(const Message& message, Era era, const ToolCall& call) const {
  try {
    return method_result(message, era, call);
  } catch (const RpcError&) {
    throw;
  } catch (const std::exception& error) {
    spdlog::error("{} of MCP failed: {}", excerpt(message.method), error.what());
    throw RpcError(kInternalError, 500, "Internal error: the server's log tells more");
  }
}

json McpServer::method_result(const Message& message, Era era, const ToolCall& call) const {
  json result;
  if (message.method == "tools/list") {
    result = tool_list(message, era);
  } else if (message.method == "tools/call") {
    result = call_tool_of(message, call);
  } else if (era == Era::kModern && message.method == "server/discover") {
    result = discover_result(instructions_);
  } else if (era == Era::kLegacy && message.method == "initialize") {
    result = initialize_result(message, instructions_);
  } else if (era == Era::kLegacy && message.method == "ping") {
    result = json::object();
  } else {
    throw unknown_method(message, era);
  }
  if (era == Era::kModern) {
    result["resultType"] = "complete";
    result["_meta"][kServerInfoKey] = server_info();
  }
  return result;
}

json McpServer::tool_list(const Message& message, Era era) const {
  const auto cursor = message.params.find("cursor");
  if (cursor != message.params.end() && !cursor->is_null()) {
    throw RpcError(kInvalidParams, 200, "Invalid params: there is no such cursor; the list has one page");
  }
  json list = json::array();
  for (const Tool& tool : tools_) list.push_back(definition_of(tool));
  json result = {{"tools", std::move(list)}};
  if (era == Era::kModern) add_cache_hints(result);
  return result;
}

json McpServer::call_tool_of(const Message& message, const ToolCall& call) const {
  const auto name = message.params.find("name");
  if (name == message.params.end() || !name->is_string()) {
    throw RpcError(kInvalidParams, 200, "Invalid params: \"name\", the tool's, must be a string");
  }
  const auto tool = std::find_if(tools_.begin(), tools_.end(), [&](const Tool& candidate) { return candidate.name == *name; });
  if (tool == tools_.end()) throw RpcError(kInvalidParams, 200, fmt::format("Unknown tool: {}", excerpt(*name)));
  const json arguments = message.params.value("arguments", json::object());
  if (!arguments.is_object() && !arguments.is_null()) {
    throw RpcError(kInvalidParams, 200,
                   fmt::format("Invalid params: \"arguments\" is {}; an object is wanted", excerpt(arguments)));
  }
  return call_tool(*tool, arguments.is_null() ? json::object() : arguments, call);
}

}  // namespace sluice::mcp
