#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "agents/mcp/mcp_server.h"

namespace sluice::mcp::test {

using nlohmann::json;

/// The headers that a request of 2026-07-28 has.
using Headers = std::multimap<std::string, std::string>;

/// A message of 2026-07-28: the revision's metadata are added to `params`.
json modern(const std::string& method, json params = json::object(), json id = 1);
/// A message without metadata.
json legacy(const std::string& method, json params = json::object(), json id = 1);
/// The headers that belong to a modern message.
Headers headers_of(const json& message);

/// A server with tools that need nothing.
class ProtocolTest : public ::testing::Test {
 protected:
  ProtocolTest();

  HttpResponse post(const std::string& body, const Headers& headers = {}) const;
  HttpResponse post(const json& message, const Headers& headers = {}) const { return post(message.dump(), headers); }
  /// The JSON of an answer with this status; expects that it has one.
  json answer(const json& message, const Headers& headers = {}, int status = 200) const;
  /// The error of an answer, which must be one with this code.
  json error(const json& message, const Headers& headers, int status, int code) const;
  /// The result of a modern message.
  json result(const std::string& method, const json& params = json::object()) const;

  McpServer server_;
};

}  // namespace sluice::mcp::test
