#include "agents/mcp/tool_schemas.h"

#include <fmt/format.h>

#include <utility>

#include "agents/mcp/text_page.h"

namespace sluice::mcp {
namespace {

using nlohmann::json;

json object_schema(json properties, const std::vector<std::string>& required) {
  json schema = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = required;
  return schema;
}

}  // namespace

json input_object(json properties, const std::vector<std::string>& required) {
  json schema = object_schema(std::move(properties), required);
  schema["additionalProperties"] = false;
  return schema;
}

json output_object(json properties, const std::vector<std::string>& required) {
  return object_schema(std::move(properties), required);
}

json output_list(json items) { return {{"type", "array"}, {"items", std::move(items)}}; }

json id_property(const std::string& description) { return {{"type", "integer"}, {"minimum", 1}, {"description", description}}; }

json text_property(const std::string& description, size_t most_bytes) {
  return {{"type", "string"}, {"maxLength", most_bytes}, {"description", description}};
}

json integer_property(const std::string& description, int64_t low, int64_t high, int64_t otherwise) {
  return {{"type", "integer"}, {"minimum", low}, {"maximum", high}, {"default", otherwise}, {"description", description}};
}

json choice_property(const std::string& description, const std::vector<std::string>& choices) {
  return {{"type", "string"}, {"enum", choices}, {"description", description}};
}

json first_line_property() {
  return {{"type", "integer"},
          {"minimum", 1},
          {"default", 1},
          {"description", "Where a long text goes on: the answer before said so"}};
}

int64_t first_line(const JsonObject& arguments) { return arguments.find_integer("from_line", 1, INT64_MAX).value_or(1); }

std::string paged_text(const std::string& text, const JsonObject& arguments) {
  const TextPage page = page_of(text, first_line(arguments));
  if (page.next_line == 0) return page.text;
  return fmt::format("{}\n(it goes on: call {} again with from_line {}; it has {} lines)", page.text, arguments.where(),
                     page.next_line, page.lines);
}

json reading_annotations() { return {{"readOnlyHint", true}, {"openWorldHint", false}}; }

json writing_annotations(bool destructive) {
  return {{"readOnlyHint", false}, {"destructiveHint", destructive}, {"idempotentHint", true}, {"openWorldHint", false}};
}

}  // namespace sluice::mcp
