#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "agents/http/http_message.h"
#include "agents/mcp/json_rpc.h"

// How a client learns what the server is: discovery in the modern era, the handshake in the legacy one.

namespace sluice::mcp {

/// {"name", "title", "version"} of the program.
nlohmann::json server_info();

/// Of `server/discover`.
nlohmann::json discover_result(const std::string& instructions);

/// Of `initialize`: the client's version if the server speaks it, otherwise the newest one with a handshake. Throws RpcError
/// (kInvalidParams) if the client names none.
nlohmann::json initialize_result(const Message& message, const std::string& instructions);

/// Adds what the modern era wants of results that may be kept: for how long, and by whom.
void add_cache_hints(nlohmann::json& result);

/// Of `subscriptions/listen`: a stream that says that none of the notifications asked for will come, and stays open. Throws
/// RpcError (kInvalidParams) without a filter.
HttpResponse listen_response(const Message& message);

}  // namespace sluice::mcp
