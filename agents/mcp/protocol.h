#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "agents/http/http_message.h"
#include "agents/mcp/json_rpc.h"

namespace sluice::mcp {

/// The first revision without a handshake: each request says what it needs in `params._meta`, and some of it again in headers.
constexpr const char* kModernVersion = "2026-07-28";
/// Revisions that begin with `initialize`, the newest first.
constexpr std::array<const char*, 3> kLegacyVersions = {"2025-11-25", "2025-06-18", "2025-03-26"};
/// What a request without a version header speaks: the header is younger.
constexpr const char* kHeaderlessVersion = "2025-03-26";

constexpr const char* kServerInfoKey = "io.modelcontextprotocol/serverInfo";
constexpr const char* kSubscriptionIdKey = "io.modelcontextprotocol/subscriptionId";

enum class Era : uint8_t { kLegacy, kModern };

/// All that the server speaks, the newest first.
nlohmann::json supported_versions();
bool is_legacy_version(const std::string& version);

/// Which era the message of a request belongs to. The body decides: a version in `params._meta` makes it modern, `initialize` or
/// no such version legacy. Of a modern message all is checked that the revision asks for, before anybody looks at its method.
/// Throws RpcError: kHeaderMismatch, kInvalidParams (`_meta`), kUnsupportedProtocolVersion, kInvalidRequest (responses).
Era era_of(const HttpRequest& request, const Message& message);

/// Throws RpcError unless the version of the request is 2025-03-26, which alone has batches.
void check_batch(const HttpRequest& request);

/// The value of a header that may be written as "=?base64?...?=". Throws RpcError (kHeaderMismatch) for a broken one, and for
/// characters that no header may hold.
std::string decode_header_value(const std::string& name, const std::string& value);

}  // namespace sluice::mcp
