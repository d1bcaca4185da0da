// Revision 2026-07-28: no handshake, metadata in every request, headers that repeat the body.

#include <chrono>

#include "agents/http/event_stream.h"
#include "tests/mcp/mcp_test.h"

namespace sluice::mcp::test {
namespace {

constexpr const char* kVersionKey = "io.modelcontextprotocol/protocolVersion";
constexpr const char* kCapabilitiesKey = "io.modelcontextprotocol/clientCapabilities";

class Modern : public ProtocolTest {
 protected:
  static json call(const std::string& name, const json& arguments = json::object()) {
    return modern("tools/call", {{"name", name}, {"arguments", arguments}});
  }
  static Headers without(Headers headers, const std::string& name) {
    headers.erase(name);
    return headers;
  }
  static Headers with(Headers headers, const std::string& name, const std::string& value) {
    headers.erase(name);
    headers.emplace(name, value);
    return headers;
  }
};

TEST_F(Modern, DiscoveryTellsWhatTheServerIs) {
  const json result = this->result("server/discover");
  EXPECT_EQ(result["resultType"], "complete");
  EXPECT_EQ(result["supportedVersions"], json({"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"}));
  EXPECT_EQ(result["capabilities"], json({{"tools", json::object()}}));
  EXPECT_EQ(result["instructions"], "Call repeat first.");
  EXPECT_GT(result["ttlMs"], 0);
  EXPECT_EQ(result["cacheScope"], "public");
  EXPECT_EQ(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "sluice");
  EXPECT_FALSE(result["_meta"]["io.modelcontextprotocol/serverInfo"]["version"].get<std::string>().empty());
}

TEST_F(Modern, ToolsAreListedInTheirOrder) {
  const json result = this->result("tools/list");
  ASSERT_EQ(result["tools"].size(), server_.tools().size());
  for (size_t i = 0; i < server_.tools().size(); ++i) EXPECT_EQ(result["tools"][i]["name"], server_.tools()[i].name);
  const json& first = result["tools"][0];
  EXPECT_EQ(first["title"], "Title of repeat");
  EXPECT_EQ(first["inputSchema"]["additionalProperties"], false);
  EXPECT_EQ(first["outputSchema"]["required"], json({"said"}));
  EXPECT_EQ(first["annotations"]["readOnlyHint"], true);
  EXPECT_FALSE(result["tools"][1].contains("outputSchema"));
  EXPECT_EQ(result["resultType"], "complete");
  EXPECT_GT(result["ttlMs"], 0);
  EXPECT_EQ(result["cacheScope"], "public");
}

TEST_F(Modern, TheListHasOnePage) {
  const json message = modern("tools/list", {{"cursor", "more"}});
  error(message, headers_of(message), 200, kInvalidParams);
}

TEST_F(Modern, AToolAnswersWithTextAndStructure) {
  const json result = this->result("tools/call", {{"name", "repeat"}, {"arguments", {{"text", "hello"}}}});
  EXPECT_EQ(result["content"], json::array({{{"type", "text"}, {"text", "hello"}}}));
  EXPECT_EQ(result["structuredContent"], json({{"said", "hello"}}));
  EXPECT_EQ(result["isError"], false);
  EXPECT_EQ(result["resultType"], "complete");
  EXPECT_TRUE(result["_meta"].contains("io.modelcontextprotocol/serverInfo"));
}

TEST_F(Modern, NamesMayBeEncoded) {
  const json message = call("größe");
  error(message, headers_of(message), 400, kHeaderMismatch);  // as it is: no ASCII
  const Headers encoded = with(headers_of(message), "Mcp-Name", "=?base64?Z3LDtsOfZQ==?=");
  EXPECT_EQ(answer(message, encoded)["result"]["content"][0]["text"], "large");
  const json plain = call("repeat", {{"text", "x"}});
  EXPECT_EQ(post(plain, with(headers_of(plain), "Mcp-Name", "=?base64?cmVwZWF0?=")).status, 200);
}

TEST_F(Modern, BrokenEncodingsAreMismatches) {
  const json message = call("repeat", {{"text", "x"}});
  for (const char* value : {"=?base64?cmVwZWF0", "=?base64?c?=", "=?base64?cm VwZWF0?=", "=?base64?!!!!?=", "=?BASE64?cmVwZWF0?=",
                            "=?base64?\?=", "=?base64?cmVwZWF0=?=", "=?base64?=", ""}) {
    error(message, with(headers_of(message), "Mcp-Name", value), 400, kHeaderMismatch);
  }
}

TEST_F(Modern, HeadersMustBeThere) {
  const json message = call("repeat", {{"text", "x"}});
  for (const char* name : {"MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"}) {
    const json response = error(message, without(headers_of(message), name), 400, kHeaderMismatch);
    EXPECT_EQ(response["id"], 1);
    EXPECT_NE(response["error"]["message"].get<std::string>().find(name), std::string::npos);
  }
  const json list = modern("tools/list");
  EXPECT_EQ(post(list, headers_of(list)).status, 200);  // without Mcp-Name: it names nothing
}

TEST_F(Modern, HeadersMustAgreeWithTheBody) {
  const json message = call("repeat", {{"text", "x"}});
  error(message, with(headers_of(message), "MCP-Protocol-Version", "2025-11-25"), 400, kHeaderMismatch);
  error(message, with(headers_of(message), "Mcp-Method", "tools/list"), 400, kHeaderMismatch);
  error(message, with(headers_of(message), "Mcp-Method", "Tools/Call"), 400, kHeaderMismatch);
  error(message, with(headers_of(message), "Mcp-Name", "refuse"), 400, kHeaderMismatch);
  const json resource = modern("resources/read", {{"uri", "file:///a"}});
  error(resource, with(headers_of(resource), "Mcp-Name", "file:///b"), 400, kHeaderMismatch);
}

TEST_F(Modern, HeadersComeOnce) {
  const json message = call("repeat", {{"text", "x"}});
  for (const char* name : {"MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"}) {
    Headers headers = headers_of(message);
    headers.emplace(name, headers.find(name)->second);
    error(message, headers, 400, kHeaderMismatch);
  }
}

TEST_F(Modern, HeaderNamesHaveNoCase) {
  const json message = modern("tools/list");
  EXPECT_EQ(post(message, {{"mcp-protocol-version", "2026-07-28"}, {"MCP-METHOD", "tools/list"}}).status, 200);
}

TEST_F(Modern, MetadataAreRequired) {
  const json whole = modern("tools/list");
  for (const char* key : {kVersionKey, kCapabilitiesKey}) {
    json message = whole;
    message["params"]["_meta"].erase(key);
    const json response = error(message, headers_of(message), 400, kInvalidParams);
    EXPECT_NE(response["error"]["message"].get<std::string>().find(key), std::string::npos);
  }
  json bare = whole;
  bare.erase("params");
  error(bare, headers_of(bare), 400, kInvalidParams);
  json odd = whole;
  odd["params"]["_meta"] = "none";
  error(odd, headers_of(odd), 400, kInvalidParams);
}

TEST_F(Modern, MetadataHaveTypes) {
  json message = modern("tools/list");
  message["params"]["_meta"][kVersionKey] = 2026;
  error(message, headers_of(message), 400, kInvalidParams);
  message = modern("tools/list");
  message["params"]["_meta"][kCapabilitiesKey] = json::array();
  error(message, headers_of(message), 400, kInvalidParams);
  message = modern("tools/list");
  message["params"]["_meta"]["io.modelcontextprotocol/clientInfo"] = "me";
  error(message, headers_of(message), 400, kInvalidParams);
  message = modern("tools/list");
  message["params"]["_meta"].erase("io.modelcontextprotocol/clientInfo");  // which may be left out
  EXPECT_EQ(post(message, headers_of(message)).status, 200);
}

TEST_F(Modern, UnknownVersionsAreRefusedWithThoseThatAreSpoken) {
  json message = modern("server/discover");
  message["params"]["_meta"][kVersionKey] = "1900-01-01";
  const json response =
      error(message, with(headers_of(message), "MCP-Protocol-Version", "1900-01-01"), 400, kUnsupportedProtocolVersion);
  EXPECT_EQ(response["error"]["data"]["requested"], "1900-01-01");
  EXPECT_EQ(response["error"]["data"]["supported"][0], "2026-07-28");
  EXPECT_EQ(response["id"], 1);
}

TEST_F(Modern, UnknownMethodsAreNotFound) {
  for (const char* method : {"initialize", "ping", "logging/setLevel", "resources/list", "tools/lists", "constructor"}) {
    const json message = modern(method, json::object(), "x");
    EXPECT_EQ(error(message, headers_of(message), 404, kMethodNotFound)["id"], "x");
  }
}

TEST_F(Modern, NotificationsAreTaken) {
  json note = {{"jsonrpc", "2.0"}, {"method", "notifications/cancelled"}, {"params", {{"requestId", 1}}}};
  EXPECT_EQ(post(note, {{"MCP-Protocol-Version", "2026-07-28"}}).status, 202);
  EXPECT_EQ(post(note, headers_of(note)).status, 202);
  error(note, with(headers_of(note), "Mcp-Method", "tools/list"), 400, kHeaderMismatch);
}

TEST_F(Modern, ClientsSendNoResponses) {
  error({{"jsonrpc", "2.0"}, {"id", 1}, {"result", json::object()}}, {{"MCP-Protocol-Version", "2026-07-28"}}, 400,
        kInvalidRequest);
}

TEST_F(Modern, AMalformedCallIsAProtocolError) {
  for (const json& params : {json::object(), json({{"name", 5}}), json({{"name", "repeat"}, {"arguments", "text"}}),
                             json({{"name", "repeat"}, {"arguments", {1, 2}}})}) {
    const json message = modern("tools/call", params);
    Headers headers = {{"MCP-Protocol-Version", "2026-07-28"}, {"Mcp-Method", "tools/call"}, {"Mcp-Name", "repeat"}};
    EXPECT_EQ(error(message, headers, 200, kInvalidParams)["id"], 1);
  }
  const json unknown = call("repeats");
  error(unknown, headers_of(unknown), 200, kInvalidParams);
}

TEST_F(Modern, WrongArgumentsAreToldToTheModel) {
  const json missing = result("tools/call", {{"name", "repeat"}});
  EXPECT_EQ(missing["isError"], true);
  EXPECT_FALSE(missing.contains("structuredContent"));
  EXPECT_NE(missing["content"][0]["text"].get<std::string>().find("text is missing"), std::string::npos);
  const json wrong = result("tools/call", {{"name", "repeat"}, {"arguments", {{"text", 5}, {"loud", true}}}});
  const std::string text = wrong["content"][0]["text"];
  EXPECT_NE(text.find("text is 5; a string is wanted"), std::string::npos) << text;
  EXPECT_NE(text.find("\"loud\" is not known here"), std::string::npos) << text;
  EXPECT_NE(text.find("text (string)"), std::string::npos) << text;
}

TEST_F(Modern, RefusalsAreToldToTheModelWithTheirHint) {
  const json refused = result("tools/call", {{"name", "refuse"}});
  EXPECT_EQ(refused["isError"], true);
  EXPECT_EQ(refused["content"][0]["text"], "it has ended\nhint: take another one");
  EXPECT_EQ(result("tools/call", {{"name", "complain"}, {"arguments", nullptr}})["content"][0]["text"],
            "that is no flow\nhint: write one");
}

TEST_F(Modern, OurFaultsAreTheServersToAnswer) {
  const json message = call("break");
  EXPECT_EQ(error(message, headers_of(message), 500, kInternalError)["id"], message["id"]);
}

TEST_F(Modern, AnswersAreJson) {
  const json message = modern("tools/list");
  EXPECT_EQ(post(message, with(headers_of(message), "Accept", "text/html, */*;q=0.1")).status, 200);
  EXPECT_EQ(post(message, with(headers_of(message), "Accept", "application/json")).status, 200);
  error(message, with(headers_of(message), "Accept", "text/event-stream"), 406, kInvalidRequest);
}

TEST_F(Modern, ASubscriptionIsAcknowledgedWithoutWhatIsNeverSent) {
  const json message = modern("subscriptions/listen", {{"notifications", {{"toolsListChanged", true}}}}, "listen-1");
  const HttpResponse response = post(message, headers_of(message));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "text/event-stream");
  EXPECT_EQ(response.headers.at("X-Accel-Buffering"), "no");
  ASSERT_TRUE(response.stream);
  const std::string event = response.stream->next(std::chrono::milliseconds(0)).value_or("");
  ASSERT_TRUE(event.starts_with("data: ") && event.ends_with("\n\n")) << event;
  const json note = json::parse(event.substr(6));
  EXPECT_EQ(note["method"], "notifications/subscriptions/acknowledged");
  EXPECT_EQ(note["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "listen-1");
  EXPECT_EQ(note["params"]["notifications"], json::object());
  EXPECT_EQ(response.stream->next(std::chrono::milliseconds(0)), "");  // open, and silent
  EXPECT_TRUE(response.stream->endless());
  const json bare = modern("subscriptions/listen");
  error(bare, headers_of(bare), 200, kInvalidParams);
}

}  // namespace
}  // namespace sluice::mcp::test
