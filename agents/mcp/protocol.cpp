#include "agents/mcp/protocol.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <map>
#include <optional>

#include "scripting/base/json_object.h"

namespace sluice::mcp {
namespace {

using nlohmann::json;

constexpr const char* kVersionHeader = "MCP-Protocol-Version";
constexpr const char* kVersionKey = "io.modelcontextprotocol/protocolVersion";
constexpr const char* kCapabilitiesKey = "io.modelcontextprotocol/clientCapabilities";
constexpr const char* kClientInfoKey = "io.modelcontextprotocol/clientInfo";

[[noreturn]] void mismatch(const std::string& message) { throw RpcError(kHeaderMismatch, 400, "Header mismatch: " + message); }

[[noreturn]] void refuse_meta(const std::string& message) { throw RpcError(kInvalidParams, 400, "Invalid params: " + message); }

[[noreturn]] void unsupported(const std::string& version) {
  throw RpcError(kUnsupportedProtocolVersion, 400, "Unsupported protocol version",
                 {{"supported", supported_versions()}, {"requested", version}});
}

/// A header that two places would have to agree about if it came twice.
std::optional<std::string> single_header(const HttpRequest& request, const char* name) {
  if (request.headers.count(name) > 1) mismatch(fmt::format("{} comes more than once", name));
  return request.header(name);
}

/// `params._meta`, or null.
const json* meta_of(const Message& message) {
  const auto meta = message.params.find("_meta");
  return meta != message.params.end() && meta->is_object() ? &*meta : nullptr;
}

/// The version in `params._meta`, or null.
const json* claimed_version(const Message& message) {
  const json* meta = meta_of(message);
  if (meta == nullptr) return nullptr;
  const auto version = meta->find(kVersionKey);
  return version == meta->end() ? nullptr : &*version;
}

void check_meta(const json& meta) {
  const auto capabilities = meta.find(kCapabilitiesKey);
  if (capabilities == meta.end()) refuse_meta(fmt::format("_meta lacks \"{}\"", kCapabilitiesKey));
  if (!capabilities->is_object()) {
    refuse_meta(fmt::format("\"{}\" is {}; an object is wanted", kCapabilitiesKey, excerpt(*capabilities)));
  }
  const auto client = meta.find(kClientInfoKey);
  if (client != meta.end() && !client->is_object()) {
    refuse_meta(fmt::format("\"{}\" is {}; an object is wanted", kClientInfoKey, excerpt(*client)));
  }
}

void check_method_header(const HttpRequest& request, const Message& message) {
  const std::optional<std::string> header = single_header(request, "Mcp-Method");
  if (!header) {
    if (message.kind == MessageKind::kNotification) return;  // the revision wants headers of requests
    mismatch("the Mcp-Method header is missing");
  }
  if (*header != message.method)
    mismatch(fmt::format("Mcp-Method is {}, the method {}", excerpt(*header), excerpt(message.method)));
}

void check_name_header(const HttpRequest& request, const Message& message) {
  static const std::map<std::string, const char*> sources = {
      {"tools/call", "name"}, {"prompts/get", "name"}, {"resources/read", "uri"}};
  const auto source = sources.find(message.method);
  if (source == sources.end()) return;
  const std::optional<std::string> header = single_header(request, "Mcp-Name");
  const auto value = message.params.find(source->second);
  if (value == message.params.end() || !value->is_string()) return;  // the method will say so
  if (!header) mismatch("the Mcp-Name header is missing");
  const std::string name = decode_header_value("Mcp-Name", *header);
  if (name != value->get<std::string>()) {
    mismatch(fmt::format("Mcp-Name is {}, params.{} {}", excerpt(name), source->second, excerpt(*value)));
  }
}

void check_modern(const HttpRequest& request, const Message& message, const std::optional<std::string>& header) {
  if (message.kind == MessageKind::kRequest) {
    check_meta(*meta_of(message));
    if (!header) mismatch(fmt::format("the {} header is missing", kVersionHeader));
  }
  check_method_header(request, message);
  check_name_header(request, message);
}

/// Of a message whose `_meta` names a version.
Era era_of_claim(const HttpRequest& request, const Message& message, const json& claim,
                 const std::optional<std::string>& header) {
  if (!claim.is_string()) refuse_meta(fmt::format("\"{}\" is {}; a string is wanted", kVersionKey, excerpt(claim)));
  const std::string version = claim;
  if (header && *header != version)
    mismatch(fmt::format("{} is {}, _meta says {}", kVersionHeader, excerpt(*header), excerpt(claim)));
  if (is_legacy_version(version)) return Era::kLegacy;
  if (version != kModernVersion) unsupported(version);
  check_modern(request, message, header);
  return Era::kModern;
}

}  // namespace

json supported_versions() {
  json versions = json::array({kModernVersion});
  for (const char* version : kLegacyVersions) versions.push_back(version);
  return versions;
}

bool is_legacy_version(const std::string& version) {
  return std::find(kLegacyVersions.begin(), kLegacyVersions.end(), version) != kLegacyVersions.end();
}

std::string decode_header_value(const std::string& name, const std::string& value) {
  constexpr std::string_view kBegin = "=?base64?";
  constexpr std::string_view kEnd = "?=";
  const bool is_visible = std::all_of(value.begin(), value.end(), [](char c) { return (c >= ' ' && c <= '~') || c == '\t'; });
  if (!is_visible) mismatch(fmt::format("{} holds characters that are not ASCII; send it as =?base64?...?=", name));
  if (!value.starts_with(kBegin) || !value.ends_with(kEnd) || value.size() < kBegin.size() + kEnd.size()) return value;
  const std::string_view encoded = std::string_view(value).substr(kBegin.size(), value.size() - kBegin.size() - kEnd.size());
  std::string decoded(encoded.size(), '\0');
  size_t length = 0;
  const char* end = nullptr;
  const int result = ::sodium_base642bin(reinterpret_cast<unsigned char*>(decoded.data()), decoded.size(), encoded.data(),
                                         encoded.size(), nullptr, &length, &end, sodium_base64_VARIANT_ORIGINAL);
  if (result != 0 || end != encoded.data() + encoded.size()) mismatch(fmt::format("{} is not valid Base64", name));
  decoded.resize(length);
  return decoded;
}

Era era_of(const HttpRequest& request, const Message& message) {
  const std::optional<std::string> header = single_header(request, kVersionHeader);
  const json* claim = claimed_version(message);
  const bool is_modern_claim = claim != nullptr && *claim == kModernVersion;
  const bool is_handshake = message.method == "initialize" && !is_modern_claim;
  if (claim != nullptr && !is_handshake) return era_of_claim(request, message, *claim, header);
  if (!header || is_legacy_version(*header)) return Era::kLegacy;
  if (*header != kModernVersion) unsupported(*header);
  if (is_handshake) return Era::kLegacy;  // clients send it after they have tried the modern era, and may still name that
  if (message.kind == MessageKind::kResponse) {
    throw RpcError(kInvalidRequest, 400, fmt::format("clients of {} send no responses", kModernVersion));
  }
  if (message.kind == MessageKind::kRequest) refuse_meta(fmt::format("_meta lacks \"{}\"", kVersionKey));
  check_modern(request, message, header);
  return Era::kModern;
}

void check_batch(const HttpRequest& request) {
  const std::string version = single_header(request, kVersionHeader).value_or(kHeaderlessVersion);
  if (version == kHeaderlessVersion) return;
  if (version != kModernVersion && !is_legacy_version(version)) unsupported(version);
  throw RpcError(kInvalidRequest, 400, fmt::format("{} has no batches: send one message a request", version));
}

}  // namespace sluice::mcp
