#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include <string_view>
#include "scripting/base/printable_text.h"

namespace sluice::mcp {

/// JSON-RPC 2.0, section 5.1, and the codes that MCP 2026-07-28 adds ("Error Codes").
enum ErrorCode : int {
  kParseError = -32700,
  kInvalidRequest = -32600,
  kMethodNotFound = -32601,
  kInvalidParams = -32602,
  kInternalError = -32603,
  kHeaderMismatch = -32020,
  kUnsupportedProtocolVersion = -32022,
};

/// Why a message is answered with an error response. What a tool has to say is no such error but a result (tool.h).
class RpcError : public std::runtime_error {
 public:
  /// `status` is that of the HTTP answer; 200 for errors of a method that the transport has no part in.
  RpcError(ErrorCode code, int status, const std::string& message, nlohmann::json data = nullptr)
      : std::runtime_error(without_nul(message)), code_(code), status_(status), data_(std::move(data)) {}

  ErrorCode code() const { return code_; }
  int status() const { return status_; }
  const nlohmann::json& data() const { return data_; }

 private:
  ErrorCode code_;
  int status_;
  nlohmann::json data_;
};

enum class MessageKind : uint8_t { kRequest, kNotification, kResponse };

/// A message from a client.
struct Message {
  MessageKind kind = MessageKind::kRequest;
  nlohmann::json id;   // of a request: a string or an integer
  std::string method;  // of a request or a notification
  nlohmann::json params = nlohmann::json::object();
};

/// The body of a request. Throws RpcError (kParseError) for what is no JSON, or nested too deep.
nlohmann::json parse_body(std::string_view body);

/// Throws RpcError (kInvalidRequest) for what is no message of MCP: members of JSON-RPC that are missing or of another type, an
/// id that is null or a fraction, parameters by position.
Message parse_message(const nlohmann::json& document);

/// The id of a message that may be wrong otherwise; null if there is none that could be sent back.
nlohmann::json readable_id(const nlohmann::json& document);

nlohmann::json result_response(const nlohmann::json& id, nlohmann::json result);
/// Without an id if that is null: MCP's schema knows no null.
nlohmann::json error_response(const nlohmann::json& id, const RpcError& error);

}  // namespace sluice::mcp
