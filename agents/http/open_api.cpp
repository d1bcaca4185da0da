#include "agents/http/open_api.h"

#include <algorithm>

namespace sluice {
namespace {

using Json = nlohmann::json;

void add_parameters(Json& all, const std::vector<RouteParameter>& parameters, const char* in) {
  for (const RouteParameter& parameter : parameters) {
    all.push_back({{"name", parameter.name}, {"in", in}, {"description", parameter.description}, {"schema", parameter.schema}});
    if (all.back()["in"] == "path") all.back()["required"] = true;
  }
}

Json parameters_of(const HttpRoute& route) {
  Json parameters = Json::array();
  add_parameters(parameters, route.path_parameters, "path");
  add_parameters(parameters, route.query, "query");
  add_parameters(parameters, route.headers, "header");
  return parameters;
}

Json answers_of(const HttpRoute& route) {
  Json answers = Json::object();
  for (const RouteAnswer& answer : route.answers) {
    Json& entry = answers[std::to_string(answer.status)];
    entry["description"] = answer.description;
    if (!answer.media_type.empty()) entry["content"][answer.media_type] = {{"schema", answer.schema}};
  }
  if (!answers.contains("default") && !route.refuse) answers["default"] = {{"$ref", "#/components/responses/Problem"}};
  return answers;
}

Json security_of(const HttpRoute& route, bool token_for_reading) {
  const Json token = {{"token", Json::array()}};
  const Json nothing = Json::object();
  if (route.access == Access::kPublic) return Json::array();
  const bool may_be_left_out = route.access == Access::kRead && !token_for_reading;
  return may_be_left_out ? Json::array({nothing, token}) : Json::array({token});
}

Json operation_of(const HttpRoute& route, bool token_for_reading) {
  Json operation = {{"operationId", route.operation},
                    {"summary", route.summary},
                    {"responses", answers_of(route)},
                    {"security", security_of(route, token_for_reading)}};
  const Json parameters = parameters_of(route);
  if (!parameters.empty()) operation["parameters"] = parameters;
  for (const std::string& type : route.consumes) {
    operation["requestBody"]["required"] = true;
    operation["requestBody"]["content"][type] = {{"schema", route.body_schema}};
  }
  return operation;
}

Json problem_schema() {
  return {{"type", "object"},
          {"description", "RFC 9457"},
          {"required", {"type", "title", "status", "detail"}},
          {"properties",
           {{"type", {{"type", "string"}}},
            {"title", {{"type", "string"}}},
            {"status", {{"type", "integer"}}},
            {"detail", {{"type", "string"}}},
            {"hint", {{"type", "string"}}}}}};
}

}  // namespace

nlohmann::json open_api_document(const std::vector<HttpRoute>& routes, const std::string& title, bool token_for_reading) {
  Json document = {{"openapi", "3.1.0"}, {"info", {{"title", title}, {"version", SLUICE_VERSION}}}, {"paths", Json::object()}};
  for (const HttpRoute& route : routes) {
    std::string method = route.method;
    std::transform(method.begin(), method.end(), method.begin(), HeaderNameLess::lower);
    document["paths"][route.pattern][method] = operation_of(route, token_for_reading);
  }
  document["components"]["schemas"]["Problem"] = problem_schema();
  document["components"]["responses"]["Problem"] = {
      {"description", "The request was refused"},
      {"content", {{"application/problem+json", {{"schema", {{"$ref", "#/components/schemas/Problem"}}}}}}}};
  document["components"]["securitySchemes"]["token"] = {{"type", "http"}, {"scheme", "bearer"}};
  return document;
}

}  // namespace sluice
