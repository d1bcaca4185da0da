#include "agents/mcp/tool.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agents/http/http_problem.h"
#include "agents/mcp/argument_schema.h"
#include "scripting/base/error.h"

namespace sluice::mcp {
namespace {

using nlohmann::json;

ToolResult refusal(const std::string& what, const std::string& hint) {
  return {.text = hint.empty() ? what : fmt::format("{}\nhint: {}", what, hint), .is_error = true};
}

ToolResult refusal(const HttpProblem& problem) {
  const auto hint = problem.members().find("hint");
  return refusal(problem.what(), hint != problem.members().end() && hint->is_string() ? hint->get<std::string>() : "");
}

ToolResult result_of(const Tool& tool, const json& arguments, const ToolCall& call) {
  const std::vector<std::string> problems = schema_problems(tool.input_schema, arguments);
  if (!problems.empty()) {
    return refusal(fmt::format("the arguments of {} are wrong: {}", tool.name, fmt::join(problems, "; ")),
                   fmt::format("call it again with arguments that follow its schema: {}", signature_of(tool.input_schema)));
  }
  const bool writes = !tool.annotations.is_object() || !tool.annotations.value("readOnlyHint", false);
  if (const auto wait = writes && call.limit ? call.limit(true) : std::nullopt) {
    return refusal("too many calls of tools that write", fmt::format("wait {} s, then call it again", wait->count()));
  }
  const json plain = plain_integers(tool.input_schema, arguments);
  try {
    return tool.call(JsonObject(plain, tool.name), call);
  } catch (const HttpProblem& problem) {
    return refusal(problem);
  } catch (const InputError& error) {
    return refusal(error.what(), error.hint());
  }
}

}  // namespace

json definition_of(const Tool& tool) {
  json definition = {{"name", tool.name},
                     {"title", tool.title},
                     {"description", tool.description},
                     {"inputSchema", tool.input_schema},
                     {"annotations", tool.annotations}};
  if (!tool.output_schema.is_null()) definition["outputSchema"] = tool.output_schema;
  return definition;
}

json call_tool(const Tool& tool, const json& arguments, const ToolCall& call) {
  const ToolResult result = result_of(tool, arguments, call);
  const json text = {{"type", "text"}, {"text", result.text}};
  json document = {{"content", json::array({text})}, {"isError", result.is_error}};
  if (!result.structured.is_null()) document["structuredContent"] = result.structured;
  return document;
}

}  // namespace sluice::mcp
