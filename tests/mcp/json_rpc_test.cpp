#include "agents/mcp/json_rpc.h"

#include "tests/mcp/mcp_test.h"

namespace sluice::mcp::test {
namespace {

class JsonRpc : public ProtocolTest {
 protected:
  /// The error that a body gets, whatever it is.
  json refusal(const std::string& body, int code) const {
    const HttpResponse response = post(body);
    EXPECT_EQ(response.status, 400) << body;
    json document = json::parse(response.body, nullptr, false);
    EXPECT_EQ(document["error"]["code"], code) << response.body;
    return document;
  }
};

TEST_F(JsonRpc, WhatIsNoJsonIsAParseError) {
  for (const char* body : {"", "{", "{\"jsonrpc\": \"2.0\",}", "nonsense", "{\"jsonrpc\": \"2.0\", \"id\": \"\xff\"}"}) {
    EXPECT_FALSE(refusal(body, kParseError).contains("id"));
  }
}

TEST_F(JsonRpc, DeepNestingIsRefusedBeforeItIsRead) {
  std::string deep = R"({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": )";
  deep += std::string(100'000, '[') + std::string(100'000, ']') + "}}";
  refusal(deep, kParseError);
}

TEST_F(JsonRpc, WhatIsNoMessageIsAnInvalidRequest) {
  for (const char* body :
       {"1", "\"ping\"", "null", "{}", R"({"id": 1, "method": "ping"})", R"({"jsonrpc": "1.0", "id": 1, "method": "ping"})",
        R"({"jsonrpc": 2.0, "id": 1, "method": "ping"})", R"({"jsonrpc": "2.0", "id": 1})",
        R"({"jsonrpc": "2.0", "id": 1, "method": 5})", R"({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]})",
        R"({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": "a"})"}) {
    refusal(body, kInvalidRequest);
  }
}

TEST_F(JsonRpc, AnInvalidRequestKeepsAnIdThatCanBeRead) {
  EXPECT_EQ(refusal(R"({"jsonrpc": "2.0", "id": "a", "method": 5})", kInvalidRequest)["id"], "a");
}

TEST_F(JsonRpc, IdsAreStringsOrIntegers) {
  for (const char* id : {"null", "1.5", "true", "[1]", "{}", "1e3", "123456789012345678901234567890"}) {
    const std::string body = std::string(R"({"jsonrpc": "2.0", "method": "ping", "id": )") + id + "}";
    EXPECT_FALSE(refusal(body, kInvalidRequest).contains("id")) << id;
  }
}

TEST_F(JsonRpc, IdsComeBackExactly) {
  for (const json& id : {json(0), json(-7), json(int64_t{9007199254740993}), json(UINT64_MAX), json(""), json("12"),
                         json("a \"quoted\" \u00e9 \n id")}) {
    EXPECT_EQ(answer(legacy("ping", json::object(), id)), json({{"jsonrpc", "2.0"}, {"id", id}, {"result", json::object()}}));
  }
}

TEST_F(JsonRpc, ParamsMayBeLeftOut) {
  EXPECT_EQ(answer({{"jsonrpc", "2.0"}, {"id", 1}, {"method", "ping"}})["result"], json::object());
}

TEST_F(JsonRpc, NotificationsAreTakenWithoutAnAnswer) {
  for (const char* method : {"notifications/initialized", "notifications/cancelled", "notifications/of/tomorrow"}) {
    const HttpResponse response = post(json({{"jsonrpc", "2.0"}, {"method", method}}));
    EXPECT_EQ(response.status, 202);
    EXPECT_EQ(response.body, "");
  }
}

TEST_F(JsonRpc, ResponsesOfLegacyClientsAreTaken) {
  EXPECT_EQ(post(json({{"jsonrpc", "2.0"}, {"id", 1}, {"result", json::object()}})).status, 202);
  EXPECT_EQ(post(json({{"jsonrpc", "2.0"}, {"id", 1}, {"error", {{"code", 1}, {"message", "no"}}}})).status, 202);
}

}  // namespace
}  // namespace sluice::mcp::test
