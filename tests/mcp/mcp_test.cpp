#include "tests/mcp/mcp_test.h"

#include "agents/http/http_problem.h"
#include "agents/mcp/tool_schemas.h"
#include "scripting/base/error.h"

namespace sluice::mcp::test {
namespace {

Tool tool_of(const std::string& name, json schema, std::function<ToolResult(const JsonObject&, const ToolCall&)> call) {
  Tool tool;
  tool.name = name;
  tool.title = "Title of " + name;
  tool.description = "Description of " + name;
  tool.input_schema = std::move(schema);
  tool.annotations = reading_annotations();
  tool.call = std::move(call);
  return tool;
}

std::vector<Tool> test_tools() {
  Tool repeat = tool_of("repeat", input_object({{"text", text_property("What to say", 20)}}, {"text"}),
                        [](const JsonObject& arguments, const ToolCall&) {
                          return ToolResult{.text = arguments.text("text"), .structured = {{"said", arguments.text("text")}}};
                        });
  repeat.output_schema = output_object({{"said", {{"type", "string"}}}}, {"said"});
  return {std::move(repeat),
          tool_of("größe", input_object({}), [](const JsonObject&, const ToolCall&) { return ToolResult{.text = "large"}; }),
          tool_of("refuse", input_object({}),
                  [](const JsonObject&, const ToolCall&) -> ToolResult {
                    throw HttpProblem(409, "it has ended").with("hint", "take another one");
                  }),
          tool_of("complain", input_object({}),
                  [](const JsonObject&, const ToolCall&) -> ToolResult { throw InputError("that is no flow", "write one"); }),
          tool_of("break", input_object({}),
                  [](const JsonObject&, const ToolCall&) -> ToolResult { throw InternalError("the secret of the house"); })};
}

}  // namespace

json legacy(const std::string& method, json params, json id) {
  return {{"jsonrpc", "2.0"}, {"id", std::move(id)}, {"method", method}, {"params", std::move(params)}};
}

json modern(const std::string& method, json params, json id) {
  params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28";
  params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json::object();
  params["_meta"]["io.modelcontextprotocol/clientInfo"] = {{"name", "test"}, {"version", "1"}};
  return legacy(method, std::move(params), std::move(id));
}

Headers headers_of(const json& message) {
  Headers headers = {{"MCP-Protocol-Version", "2026-07-28"}, {"Mcp-Method", message["method"]}};
  if (message["method"] == "tools/call") headers.emplace("Mcp-Name", message["params"]["name"]);
  return headers;
}

ProtocolTest::ProtocolTest() : server_(test_tools(), "Call repeat first.") {}

HttpResponse ProtocolTest::post(const std::string& body, const Headers& headers) const {
  HttpRequest request;
  request.method = "POST";
  request.path = "/mcp";
  request.headers = {{"Content-Type", "application/json"}, {"Accept", "application/json, text/event-stream"}};
  for (const auto& [name, value] : headers) {
    if (name == "Accept") request.headers.erase("Accept");
    request.headers.emplace(name, value);
  }
  request.body = body;
  request.is_wanted = [] { return true; };
  return server_.handle(request);
}

json ProtocolTest::answer(const json& message, const Headers& headers, int status) const {
  const HttpResponse response = post(message, headers);
  EXPECT_EQ(response.status, status) << response.body;
  EXPECT_EQ(response.content_type, "application/json");
  return json::parse(response.body, nullptr, false);
}

json ProtocolTest::error(const json& message, const Headers& headers, int status, int code) const {
  json response = answer(message, headers, status);
  EXPECT_EQ(response.value("jsonrpc", ""), "2.0");
  EXPECT_FALSE(response.contains("result"));
  const json error = response.value("error", json::object());
  EXPECT_EQ(error.value("code", 0), code) << response.dump();
  EXPECT_FALSE(error.value("message", "").empty());
  return response;
}

json ProtocolTest::result(const std::string& method, const json& params) const {
  const json message = modern(method, params);
  const json response = answer(message, headers_of(message));
  EXPECT_EQ(response["id"], message["id"]);
  return response.value("result", json());
}

}  // namespace sluice::mcp::test
