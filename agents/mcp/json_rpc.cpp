#include "agents/mcp/json_rpc.h"

#include <fmt/format.h>

#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace sluice::mcp {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& message) { throw RpcError(kInvalidRequest, 400, message); }

bool is_id(const json& value) { return value.is_string() || value.is_number_integer(); }

bool is_response(const json& document) {
  return document.contains("id") && (document.contains("result") || document.contains("error"));
}

}  // namespace

json parse_body(std::string_view body) {
  try {
    return parse_json(body, "body");
  } catch (const InputError& error) {
    throw RpcError(kParseError, 400, error.what());
  }
}

Message parse_message(const json& document) {
  if (!document.is_object()) refuse(fmt::format("a message is an object, not {}", excerpt(document)));
  const auto version = document.find("jsonrpc");
  if (version == document.end() || *version != "2.0") refuse("\"jsonrpc\" must be \"2.0\"");
  Message message;
  const auto method = document.find("method");
  if (method == document.end()) {
    if (!is_response(document)) refuse("\"method\" is missing");
    message.kind = MessageKind::kResponse;
    return message;
  }
  if (!method->is_string()) refuse(fmt::format("\"method\" is {}; a string is wanted", excerpt(*method)));
  message.method = method->get<std::string>();
  const auto params = document.find("params");
  if (params != document.end() && !params->is_null()) {
    if (!params->is_object()) refuse(fmt::format("\"params\" is {}; an object is wanted", excerpt(*params)));
    message.params = *params;
  }
  const auto id = document.find("id");
  if (id == document.end()) {
    message.kind = MessageKind::kNotification;
  } else if (is_id(*id)) {
    message.id = *id;
  } else {
    refuse(fmt::format("\"id\" is {}; a string or an integer is wanted", excerpt(*id)));
  }
  return message;
}

json readable_id(const json& document) {
  if (!document.is_object()) return nullptr;
  const auto id = document.find("id");
  return id != document.end() && is_id(*id) ? *id : json(nullptr);
}

json result_response(const json& id, json result) { return {{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}}; }

json error_response(const json& id, const RpcError& error) {
  json response = {{"jsonrpc", "2.0"}, {"error", {{"code", static_cast<int>(error.code())}, {"message", error.what()}}}};
  if (!id.is_null()) response["id"] = id;
  if (!error.data().is_null()) response["error"]["data"] = error.data();
  return response;
}

}  // namespace sluice::mcp
