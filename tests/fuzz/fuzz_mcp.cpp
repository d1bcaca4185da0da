// Bodies and headers of messages of MCP: whatever comes, the answer is one of the protocol's, and bears the id of the message.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "agents/mcp/mcp_server.h"
#include "agents/mcp/tool_schemas.h"

namespace {

using nlohmann::json;

sluice::mcp::McpServer make_server() {
  sluice::mcp::Tool tool;
  tool.name = "repeat";
  tool.input_schema = sluice::mcp::input_object({{"text", sluice::mcp::text_property("", 100)},
                                                 {"times", sluice::mcp::integer_property("", 0, 3, 1)},
                                                 {"ids", {{"type", "array"}, {"items", sluice::mcp::id_property("")}}},
                                                 {"kind", sluice::mcp::choice_property("", {"a", "b"})}});
  tool.call = [](const sluice::JsonObject& arguments, const sluice::mcp::ToolCall&) {
    const std::string* text = arguments.find_text("text");
    return sluice::mcp::ToolResult{.text = text == nullptr ? "" : *text};
  };
  return {{tool}, ""};
}

/// Up to the next line break, which is removed, too.
std::string take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  std::string line(text.substr(0, end));
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

void check(const json& response) {
  if (response.value("jsonrpc", "") != "2.0") __builtin_trap();
  if (response.contains("result") == response.contains("error")) __builtin_trap();
  if (response.contains("error") && !response["error"]["code"].is_number_integer()) __builtin_trap();
}

}  // namespace

// The first three lines are the headers MCP-Protocol-Version, Mcp-Method and Mcp-Name, absent if they are empty; then the body.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const sluice::mcp::McpServer server = make_server();
  std::string_view text(reinterpret_cast<const char*>(data), size);
  sluice::HttpRequest request;
  for (const char* name : {"MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"}) {
    const std::string value = take_line(text);
    if (!value.empty()) request.headers.emplace(name, value);
  }
  request.body = text;
  request.is_wanted = [] { return true; };
  const sluice::HttpResponse response = server.handle(request);
  if (response.status == 202) {
    if (!response.body.empty()) __builtin_trap();
    return 0;
  }
  if (response.stream) return 0;
  const json document = json::parse(response.body);
  if (document.is_array()) {
    for (const json& one : document) check(one);
  } else {
    check(document);
  }
  return 0;
}
