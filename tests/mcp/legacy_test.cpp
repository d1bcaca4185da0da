// Revisions with a handshake: 2025-03-26, 2025-06-18, 2025-11-25.

#include "tests/mcp/mcp_test.h"

namespace sluice::mcp::test {
namespace {

class Legacy : public ProtocolTest {
 protected:
  json initialize(const std::string& version, const Headers& headers = {}) const {
    return answer(legacy("initialize", {{"protocolVersion", version},
                                        {"capabilities", json::object()},
                                        {"clientInfo", {{"name", "test"}, {"version", "1"}}}}),
                  headers)["result"];
  }
};

TEST_F(Legacy, InitializeEchoesAVersionThatIsSpoken) {
  for (const char* version : kLegacyVersions) {
    const json result = initialize(version);
    EXPECT_EQ(result["protocolVersion"], version);
    EXPECT_EQ(result["capabilities"], json({{"tools", json::object()}}));
    EXPECT_EQ(result["serverInfo"]["name"], "sluice");
    EXPECT_EQ(result["instructions"], "Call repeat first.");
    EXPECT_FALSE(result.contains("resultType"));
  }
}

TEST_F(Legacy, InitializeOffersTheNewestVersionForOthers) {
  for (const char* version : {"2024-11-05", "2026-07-28", "2099-01-01", "tomorrow"}) {
    EXPECT_EQ(initialize(version)["protocolVersion"], "2025-11-25");
  }
}

TEST_F(Legacy, InitializeAfterDiscoveryIsServed) {
  EXPECT_EQ(initialize("2025-11-25", {{"MCP-Protocol-Version", "2026-07-28"}})["protocolVersion"], "2025-11-25");
}

TEST_F(Legacy, InitializeWithAnUnknownVersionInTheHeaderIsRefused) {
  error(legacy("initialize", {{"protocolVersion", "2025-11-25"}}), {{"MCP-Protocol-Version", "2099-01-01"}}, 400,
        kUnsupportedProtocolVersion);
}

TEST_F(Legacy, InitializeWantsAVersion) {
  EXPECT_EQ(error(legacy("initialize"), {}, 200, kInvalidParams)["id"], 1);
  error(legacy("initialize", {{"protocolVersion", 2025}}), {}, 200, kInvalidParams);
}

TEST_F(Legacy, EveryVersionMayBeNamedInTheHeader) {
  for (const char* version : kLegacyVersions) {
    EXPECT_EQ(answer(legacy("ping"), {{"MCP-Protocol-Version", version}})["result"], json::object());
  }
  // A client that claims an older revision in the metadata gets that one, too.
  EXPECT_EQ(answer(legacy("ping", {{"_meta", {{"io.modelcontextprotocol/protocolVersion", "2025-11-25"}}}}))["result"],
            json::object());
}

TEST_F(Legacy, AnUnknownVersionInTheHeaderIsRefused) {
  for (const char* version : {"2024-11-05", "1.0", "2099-01-01"}) {
    const json response = error(legacy("ping"), {{"MCP-Protocol-Version", version}}, 400, kUnsupportedProtocolVersion);
    EXPECT_EQ(response["error"]["data"]["requested"], version);
    EXPECT_EQ(response["error"]["data"]["supported"], json({"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"}));
  }
}

TEST_F(Legacy, SessionsAreIgnored) {
  const HttpResponse response = post(legacy("ping"), {{"Mcp-Session-Id", "of another server"}, {"Last-Event-ID", "5"}});
  EXPECT_EQ(response.status, 200);
  EXPECT_FALSE(response.headers.contains("Mcp-Session-Id"));
}

TEST_F(Legacy, UnknownMethodsAreAnsweredInBand) {
  for (const char* method :
       {"resources/list", "prompts/list", "logging/setLevel", "server/discover", "subscriptions/listen", ""}) {
    EXPECT_EQ(error(legacy(method, json::object(), "x"), {}, 200, kMethodNotFound)["id"], "x");
  }
}

TEST_F(Legacy, ToolsAreListedAndCalled) {
  const json list = answer(legacy("tools/list"))["result"];
  EXPECT_EQ(list["tools"].size(), 5U);
  EXPECT_FALSE(list.contains("ttlMs"));
  const json call = answer(legacy("tools/call", {{"name", "repeat"}, {"arguments", {{"text", "hello"}}}}))["result"];
  EXPECT_EQ(call["structuredContent"], json({{"said", "hello"}}));
  EXPECT_FALSE(call.contains("resultType"));
  EXPECT_FALSE(call.contains("_meta"));
}

TEST_F(Legacy, HeadersOfTheModernEraAreNotChecked) {
  EXPECT_EQ(post(legacy("ping"), {{"Mcp-Method", "tools/list"}, {"Mcp-Name", "other"}}).status, 200);
}

TEST_F(Legacy, ABatchIsAnsweredByABatch) {
  const json batch = json::array({legacy("ping", json::object(), 1),
                                  {{"jsonrpc", "2.0"}, {"method", "notifications/initialized"}},
                                  legacy("nothing", json::object(), "b"),
                                  {{"id", 3}},
                                  legacy("tools/call", {{"name", "repeat"}, {"arguments", {{"text", "hi"}}}}, 4)});
  for (const Headers& headers : {Headers{}, Headers{{"MCP-Protocol-Version", "2025-03-26"}}}) {
    const json responses = answer(batch, headers);
    ASSERT_EQ(responses.size(), 4U);
    EXPECT_EQ(responses[0], json({{"jsonrpc", "2.0"}, {"id", 1}, {"result", json::object()}}));
    EXPECT_EQ(responses[1]["error"]["code"], kMethodNotFound);
    EXPECT_EQ(responses[2]["error"]["code"], kInvalidRequest);
    EXPECT_EQ(responses[2]["id"], 3);
    EXPECT_EQ(responses[3]["result"]["content"][0]["text"], "hi");
  }
}

TEST_F(Legacy, ALongAnswerToABatchEndsWithErrors) {
  const std::string id(40'000, 'x');  // which comes back
  json batch = json::array();
  for (int i = 0; i < 31; ++i) batch.push_back(legacy("ping", json::object(), id));
  batch.push_back(legacy("ping", json::object(), 31));
  const json responses = answer(batch);
  ASSERT_EQ(responses.size(), 32U);
  EXPECT_TRUE(responses[0].contains("result"));
  EXPECT_EQ(responses[31]["id"], 31);
  EXPECT_EQ(responses[31]["error"]["code"], kInvalidRequest);
}

TEST_F(Legacy, AFaultOfOursTakesNoOtherAnswersAway) {
  const json batch = json::array({legacy("tools/call", {{"name", "repeat"}, {"arguments", {{"text", "before"}}}}, 1),
                                  legacy("tools/call", {{"name", "break"}}, 2), legacy("ping", json::object(), 3)});
  const json responses = answer(batch);
  ASSERT_EQ(responses.size(), 3U);
  EXPECT_EQ(responses[0]["result"]["structuredContent"]["said"], "before");
  EXPECT_EQ(responses[1]["id"], 2);
  EXPECT_EQ(responses[1]["error"]["code"], kInternalError);
  EXPECT_EQ(responses[2]["id"], 3);
}

TEST_F(Legacy, ABatchOfNotificationsIsTaken) {
  const json note = {{"jsonrpc", "2.0"}, {"method", "notifications/initialized"}};
  const HttpResponse response = post(json::array({note, note}));
  EXPECT_EQ(response.status, 202);
  EXPECT_EQ(response.body, "");
}

TEST_F(Legacy, BatchesHaveLimits) {
  error(json::array(), {}, 400, kInvalidRequest);
  json large = json::array();
  for (int i = 0; i < 33; ++i) large.push_back(legacy("ping", json::object(), i));
  error(large, {}, 400, kInvalidRequest);
}

TEST_F(Legacy, OnlyTheFirstRevisionHasBatches) {
  const json batch = json::array({legacy("ping")});
  for (const char* version : {"2025-06-18", "2025-11-25", "2026-07-28"}) {
    error(batch, {{"MCP-Protocol-Version", version}}, 400, kInvalidRequest);
  }
  error(batch, {{"MCP-Protocol-Version", "1999-01-01"}}, 400, kUnsupportedProtocolVersion);
}

TEST_F(Legacy, ABatchHoldsNoHandshakeAndNothingModern) {
  const json ping = modern("tools/list");
  const json responses = answer(json::array({legacy("initialize", {{"protocolVersion", "2025-03-26"}}), ping}));
  ASSERT_EQ(responses.size(), 2U);
  EXPECT_EQ(responses[0]["error"]["code"], kInvalidRequest);
  EXPECT_EQ(responses[1]["error"]["code"], kHeaderMismatch);  // it would need headers, which a batch cannot have
}

}  // namespace
}  // namespace sluice::mcp::test
