#include "agents/mcp/language_tools.h"

#include <fmt/format.h>

#include "agents/mcp/text_page.h"
#include "agents/mcp/tool_schemas.h"
#include "scripting/base/error.h"

namespace sluice::mcp {
namespace {

using nlohmann::json;

constexpr const char* kAddressesAsTools =
    "Where this guide names addresses of the HTTP API, call tools: `leaderboard`, `front`, `list_submissions`, `get_submission` "
    "(with "
    "the script), `lineage` and `diff` for reading; `check_flow` for POST /v1/check; `submit_flow` for POST /v1/submissions, "
    "with "
    "`suite` as an argument of its own; `wait_result` for `?wait=`; `cancel_submission`; `confirm_submission`. `shipped_flows` "
    "has whole scripts.\n\n";

std::string text_of(const json& document, const char* member) {
  const json value = document.value(member, json());
  return value.is_string() ? value.get<std::string>() : "";
}

std::string text_of_operator(const json& reference) {
  const std::string shape = text_of(reference, "shape");
  return fmt::format("{}  ({}{}{})\n    {}\n", text_of(reference, "signature"), text_of(reference, "stage"),
                     shape.empty() ? "" : ", gives ", shape, text_of(reference, "summary"));
}

/// The items of a document whose name contains `part`, each as `write` makes it.
template <typename Write>
std::string matching_texts(const json& items, const std::string& part, const Write& write) {
  std::string text;
  for (const json& item : items) {
    if (text_of(item, "name").find(part) != std::string::npos) text += write(item);
  }
  return text;
}

std::string name_of(const JsonObject& arguments) {
  const std::string* name = arguments.find_text("name");
  return name == nullptr ? "" : *name;
}

}  // namespace

Tool guide_tool(HarnessService& service) {
  Tool tool;
  tool.name = "guide";
  tool.title = "How to write and submit flows";
  tool.description =
      "Read this first. How a flow is written (stages, axes, types), how it is checked, submitted and judged, what the suites "
      "and "
      "metrics are, and how to improve a flow. Markdown.";
  tool.input_schema = input_object({{"from_line", first_line_property()}});
  tool.annotations = reading_annotations();
  tool.call = [&service](const JsonObject& arguments, const ToolCall&) {
    return ToolResult{.text = paged_text(kAddressesAsTools + service.guide(), arguments)};
  };
  return tool;
}

Tool operators_tool(HarnessService& service) {
  Tool tool;
  tool.name = "operators";
  tool.title = "Operators of the flow language";
  tool.description =
      "Every operator that a flow may use: how it is called, in which stage, what shape it gives, what it means. Without `name`, "
      "all of them.";
  tool.input_schema = input_object({{"name", text_property("Only operators whose name contains this, for example topk", 100)},
                                    {"from_line", first_line_property()}});
  tool.annotations = reading_annotations();
  tool.call = [&service](const JsonObject& arguments, const ToolCall& call) {
    Caller caller(call.caller);
    const std::string part = name_of(arguments);
    const std::string text = matching_texts(service.operators(caller).at("operators"), part, text_of_operator);
    if (text.empty()) {
      throw InputError(fmt::format("no operator's name contains {}", excerpt(part)), "call operators without a name");
    }
    return ToolResult{.text = paged_text(text, arguments)};
  };
  return tool;
}

Tool shipped_flows_tool(HarnessService& service) {
  Tool tool;
  tool.name = "shipped_flows";
  tool.title = "Flows to learn from";
  tool.description =
      "The flows that come with Sluice. Without `name`, their names and what they do; with `name`, the script of one, to learn "
      "from or to begin with.";
  tool.input_schema = input_object({{"name", text_property("The flow whose script is wanted, for example quest", 100)}});
  tool.annotations = reading_annotations();
  tool.call = [&service](const JsonObject& arguments, const ToolCall& call) {
    Caller caller(call.caller);
    const json flows = service.flows(caller).at("flows");
    const std::string name = name_of(arguments);
    const std::string all = matching_texts(
        flows, "", [](const json& flow) { return fmt::format("{}: {}\n", text_of(flow, "name"), text_of(flow, "title")); });
    if (name.empty()) return ToolResult{.text = all + "Call shipped_flows with a name for its script.\n"};
    for (const json& flow : flows) {
      if (text_of(flow, "name") == name) return ToolResult{.text = text_of(flow, "script")};
    }
    throw InputError(fmt::format("no shipped flow is called {}", excerpt(name)), "these are there:\n" + all);
  };
  return tool;
}

}  // namespace sluice::mcp
