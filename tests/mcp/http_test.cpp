// What the HTTP server adds: who may call, how large a message may be, and what a client reads when it is refused.

#include <httplib.h>

#include <chrono>
#include <future>
#include <thread>

#include "agents/http/http_server.h"
#include "agents/mcp/tool_schemas.h"
#include "tests/mcp/mcp_test.h"

namespace sluice::mcp::test {
namespace {

using namespace std::chrono_literals;

class McpHttp : public ProtocolTest {
 protected:
  ~McpHttp() override {
    if (http_) http_->stop();
  }

  void start(bool token_for_reading = false) {
    HttpServerOptions options;
    options.gate.token_for_reading = token_for_reading;
    options.gate.origins = {"https://inspector.example"};
    options.gate.authenticate = [](const std::string& token) {
      return token == "right" ? std::optional(Identity{"ada", Role::kAgent}) : std::nullopt;
    };
    http_.emplace(options);
    server_.add_routes(*http_);
    http_->start();
  }

  httplib::Result send(const std::string& body, const httplib::Headers& headers = {}, const char* type = "application/json") {
    httplib::Client client("127.0.0.1", http_->port());
    httplib::Headers all = {{"Accept", "application/json, text/event-stream"}};
    all.insert(headers.begin(), headers.end());
    return client.Post("/mcp", all, body, type);
  }

  /// A refusal: an error of JSON-RPC without an id, since no message was read.
  static void expect_error(const httplib::Result& result, int status, int code) {
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, status) << result->body;
    EXPECT_EQ(result->get_header_value("Content-Type"), "application/json");
    const json document = json::parse(result->body, nullptr, false);
    EXPECT_EQ(document["jsonrpc"], "2.0");
    EXPECT_EQ(document["error"]["code"], code);
    EXPECT_FALSE(document.contains("id"));
  }

  std::optional<HttpServer> http_;
};

TEST_F(McpHttp, AModernMessageNeedsNothingBefore) {
  start();
  const json message = modern("tools/list");
  httplib::Headers headers;
  for (const auto& [name, value] : headers_of(message)) headers.emplace(name, value);
  const auto result = send(message.dump(), headers);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 200);
  EXPECT_EQ(result->get_header_value("Content-Type"), "application/json");
  EXPECT_FALSE(result->has_header("Mcp-Session-Id"));
  EXPECT_EQ(json::parse(result->body)["result"]["tools"].size(), 5U);
}

TEST_F(McpHttp, OnlyPostIsTaken) {
  start();
  httplib::Client client("127.0.0.1", http_->port());
  for (const auto& result : {client.Get("/mcp"), client.Delete("/mcp"), client.Put("/mcp", "{}", "application/json")}) {
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, 405);
    EXPECT_NE(result->get_header_value("Allow").find("POST"), std::string::npos);
  }
}

TEST_F(McpHttp, OtherSitesAreKeptOut) {
  start();
  const std::string ping = legacy("ping").dump();
  EXPECT_EQ(send(ping, {{"Origin", "http://evil.example"}})->status, 403);
  EXPECT_EQ(send(ping, {{"Host", "evil.example"}})->status, 421);
  EXPECT_EQ(send(ping, {{"Origin", "https://inspector.example"}})->status, 200);
}

TEST_F(McpHttp, AllowedPagesMaySendTheHeadersOfTheProtocol) {
  start();
  httplib::Client client("127.0.0.1", http_->port());
  const auto result = client.Options("/mcp", {{"Origin", "https://inspector.example"}});
  ASSERT_TRUE(result);
  const std::string allowed = result->get_header_value("Access-Control-Allow-Headers");
  for (const char* name : {"MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Authorization", "Content-Type"}) {
    EXPECT_NE(allowed.find(name), std::string::npos) << allowed;
  }
}

TEST_F(McpHttp, RefusalsAreErrorsOfTheProtocol) {
  start();
  expect_error(send("{}", {}, "text/plain"), 415, kInvalidRequest);
  expect_error(send(std::string(2 << 20, ' ')), 413, kInvalidRequest);
  expect_error(send("{"), 400, kParseError);
}

TEST_F(McpHttp, OurFaultsTellNothingButWhichRequestFailed) {
  start();
  const auto result = send(legacy("tools/call", {{"name", "break"}}, "mine").dump());
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 500);
  const json document = json::parse(result->body, nullptr, false);
  EXPECT_EQ(document["error"]["code"], kInternalError);
  EXPECT_EQ(document["id"], "mine");
  EXPECT_EQ(result->body.find("secret"), std::string::npos);
}

TEST_F(McpHttp, AServerMayWantATokenForReading) {
  start(true);
  const std::string ping = legacy("ping").dump();
  const auto refused = send(ping);
  expect_error(refused, 401, kInvalidRequest);
  EXPECT_EQ(refused->get_header_value("WWW-Authenticate"), "Bearer");
  expect_error(send(ping, {{"Authorization", "Bearer wrong"}}), 401, kInvalidRequest);
  EXPECT_EQ(send(ping, {{"Authorization", "Bearer right"}})->status, 200);
}

TEST_F(McpHttp, AWrongTokenKeepsNobodyFromReading) {
  start();
  EXPECT_EQ(send(legacy("ping").dump(), {{"Authorization", "Bearer wrong"}})->status, 200);
}

TEST_F(McpHttp, ToolsLearnThatTheClientHasGone) {
  std::promise<void> begun;
  std::promise<void> left;
  Tool wait;
  wait.name = "wait";
  wait.input_schema = input_object(json::object());
  wait.call = [&](const JsonObject&, const ToolCall& call) {
    begun.set_value();
    while (call.is_wanted() && std::chrono::steady_clock::now() < call.deadline) std::this_thread::sleep_for(10ms);
    if (!call.is_wanted()) left.set_value();
    return ToolResult{.text = "over"};
  };
  const McpServer waiting({wait}, "");
  http_.emplace(HttpServerOptions());
  waiting.add_routes(*http_);
  http_->start();
  httplib::Client client("127.0.0.1", http_->port());
  std::jthread caller([&] { client.Post("/mcp", legacy("tools/call", {{"name", "wait"}}).dump(), "application/json"); });
  ASSERT_EQ(begun.get_future().wait_for(20s), std::future_status::ready);
  client.stop();
  EXPECT_EQ(left.get_future().wait_for(20s), std::future_status::ready);
  caller.join();
  http_->stop();
  http_.reset();
}

}  // namespace
}  // namespace sluice::mcp::test
