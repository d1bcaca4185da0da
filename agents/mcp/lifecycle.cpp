#include "agents/mcp/lifecycle.h"

#include <memory>

#include "agents/http/event_stream.h"
#include "agents/http/http_problem.h"
#include "agents/mcp/protocol.h"

namespace sluice::mcp {
namespace {

using nlohmann::json;

constexpr int kFreshMilliseconds = 300'000;  // the tools change when the program does

json capabilities() { return {{"tools", json::object()}}; }

}  // namespace

json server_info() { return {{"name", "sluice"}, {"title", "Sluice"}, {"version", SLUICE_VERSION}}; }

void add_cache_hints(json& result) {
  result["ttlMs"] = kFreshMilliseconds;
  result["cacheScope"] = "public";
}

json discover_result(const std::string& instructions) {
  json result = {{"supportedVersions", supported_versions()}, {"capabilities", capabilities()}, {"instructions", instructions}};
  add_cache_hints(result);
  return result;
}

json initialize_result(const Message& message, const std::string& instructions) {
  const auto version = message.params.find("protocolVersion");
  if (version == message.params.end() || !version->is_string()) {
    throw RpcError(kInvalidParams, 200, "Invalid params: \"protocolVersion\" must be a string",
                   {{"supported", supported_versions()}});
  }
  const std::string wanted = *version;
  return {{"protocolVersion", is_legacy_version(wanted) ? wanted : kLegacyVersions.front()},
          {"capabilities", capabilities()},
          {"serverInfo", server_info()},
          {"instructions", instructions}};
}

HttpResponse listen_response(const Message& message) {
  const auto filter = message.params.find("notifications");
  if (filter == message.params.end() || !filter->is_object()) {
    throw RpcError(kInvalidParams, 200, "Invalid params: \"notifications\", what to listen for, must be an object");
  }
  const json acknowledged = {{"jsonrpc", "2.0"},
                             {"method", "notifications/subscriptions/acknowledged"},
                             {"params", {{"_meta", {{kSubscriptionIdKey, message.id}}}, {"notifications", json::object()}}}};
  auto queue = std::make_shared<EventQueue>();
  queue->push({.data = json_text(acknowledged), .name = {}, .id = {}});
  return event_response(std::make_shared<EventStream>(queue));
}

}  // namespace sluice::mcp
