#include "agents/mcp/submission_schemas.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agents/harness/harness_service.h"
#include "agents/mcp/tool_schemas.h"

namespace sluice::mcp {
namespace {

using nlohmann::json;

json text_type() { return {{"type", "string"}}; }
json integer_type() { return {{"type", "integer"}}; }
json metrics_type() { return {{"type", "object"}, {"additionalProperties", metric_schema()}}; }

std::vector<std::string> status_names() {
  std::vector<std::string> names;
  for (int status = 0; status <= static_cast<int>(store::Status::kCancelled); ++status) {
    names.emplace_back(store::name_of(static_cast<store::Status>(status)));
  }
  return names;
}

json row_properties() {
  return {{"id", integer_type()},
          {"agent", text_type()},
          {"name", text_type()},
          {"status", text_type()},
          {"created", text_type()},
          {"parents", output_list(integer_type())},
          {"settings", {{"type", "object"}}},
          {"metrics", metrics_type()},
          {"same_as", integer_type()},
          {"final_of", integer_type()},
          {"final", output_object({{"id", integer_type()},
                                   {"model", text_type()},
                                   {"suite", text_type()},
                                   {"status", text_type()},
                                   {"confirmed", text_type()},
                                   {"passed", {{"type", "boolean"}}},
                                   {"metrics", metrics_type()}},
                                  {"id", "status", "passed", "metrics"})},
          {"confirmation", output_object({{"state", text_type()},
                                          {"tries", integer_type()},
                                          {"status", text_type()},
                                          {"seed", text_type()},
                                          {"message", text_type()},
                                          {"hint", text_type()},
                                          {"metrics", metrics_type()},
                                          {"flattered", metric_schema()}},
                                         {"state", "tries"})}};
}

std::vector<std::string> row_members() { return {"id", "agent", "name", "status", "created", "parents", "settings", "metrics"}; }

}  // namespace

json filter_properties() {
  constexpr size_t kMost = 200;
  return {{"agent", text_property("Only those that this agent handed in", kMost)},
          {"status", choice_property("Only those with this status", status_names())},
          {"model", text_property("Only those judged on this model", kMost)},
          {"device", text_property("Only those judged on this device: cpu or cuda", kMost)},
          {"suite", text_property("Only those judged by this suite: verify, quick, standard, full or real", kMost)},
          {"text", text_property("Only those with this text in name, notes or script", kMost)}};
}

store::Filter filter_of(const JsonObject& arguments) {
  return sluice::filter_of([&](const std::string& name) -> std::optional<std::string> {
    const std::string* text = arguments.find_text(name.c_str());
    return text == nullptr ? std::nullopt : std::optional(*text);
  });
}

json metric_schema() {
  const json number = {{"type", "number"}};
  return output_object({{"value", number}, {"low", number}, {"high", number}}, {"value"});
}

json row_schema() { return output_object(row_properties(), row_members()); }

json submission_schema() {
  json properties = row_properties();
  for (const char* member : {"notes", "message", "hint"}) properties[member] = text_type();
  properties["attempt"] = integer_type();
  properties["stages"] = output_list(output_object(
      {{"stage", text_type()}, {"status", text_type()}, {"seconds", {{"type", "number"}}}, {"message", text_type()}},
      {"stage", "status"}));
  properties["tasks"] = output_list(output_object({{"task", text_type()}, {"tokens", integer_type()}}, {"task"}));
  properties["tasks_left_out"] = integer_type();
  return output_object(std::move(properties), row_members());
}

}  // namespace sluice::mcp
