#include "agents/harness/route_parts.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

#include "agents/evaluation/metric_table.h"
#include "agents/harness/harness_service.h"
#include "agents/harness/schemas.h"
#include "agents/http/http_problem.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using nlohmann::json;

int64_t number_of(const std::string& text, const std::string& what, int64_t low, int64_t high) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < low || number > high) {
    throw HttpProblem(400, fmt::format("{} is \"{:.60}\"; a number from {} to {} is wanted", what, text, low, high));
  }
  return number;
}

/// Media types that no browser runs. A document that was cut is none any more.
std::string safe_media_type(const store::Artifact& artifact) {
  const bool whole = artifact.size <= static_cast<int64_t>(artifact.bytes.size());
  return whole && artifact.media_type == "application/json" ? artifact.media_type : "text/plain; charset=utf-8";
}

const std::array<RouteParameter, 5>& path_parameters() {
  static const std::array<RouteParameter, 5> parameters = {{{"id", "the number of a submission", schemas::submission_id()},
                                                            {"artifact", "its name, such as report.json", schemas::text()},
                                                            {"name", "the name of an agent", schemas::text()},
                                                            {"study", "the number of a study", schemas::positive()},
                                                            {"number", "of a trial in its study, from 0", schemas::integer()}}};
  return parameters;
}

}  // namespace

HttpResponse json_answer(const json& document, int status) {
  HttpResponse response;
  response.status = status;
  response.body = json_text(document);
  return response;
}

HttpResponse artifact_answer(store::Artifact artifact) {
  HttpResponse response;
  response.content_type = safe_media_type(artifact);
  response.body = std::move(artifact.bytes);
  response.headers["Content-Security-Policy"] = "default-src 'none'; frame-ancestors 'none'; sandbox";
  return response;
}

json body_of(const HttpRequest& request, const std::string& what) { return parse_json(request.body, what); }

int64_t query_number(const HttpRequest& request, const std::string& name, int64_t otherwise, int64_t low, int64_t high) {
  const auto value = request.query_value(name);
  return value ? number_of(*value, name, low, high) : otherwise;
}

std::string query_text(const HttpRequest& request, const std::string& name, const std::string& otherwise) {
  return request.query_value(name).value_or(otherwise);
}

store::SubmissionId id_of(const HttpRequest& request) { return path_number(request, "id", "the number of a submission", 1); }

int64_t path_number(const HttpRequest& request, const std::string& name, const std::string& what, int64_t low) {
  return number_of(request.path_parameters.at(name), what, low, INT64_MAX);
}

std::optional<store::SubmissionId> query_id(const HttpRequest& request, const std::string& name) {
  if (!request.query_value(name)) return std::nullopt;
  return query_number(request, name, 0, 1, INT64_MAX);
}

store::Filter filter_of(const HttpRequest& request) {
  return filter_of([&](const std::string& name) { return request.query_value(name); });
}

std::string known_metric(const std::string& metric) {
  if (metrics::find(metric) != nullptr) return metric;
  throw HttpProblem(422, fmt::format("there is no metric {}", excerpt(metric))).with("hint", metrics::names());
}

std::vector<RouteParameter> with_filters(std::vector<RouteParameter> parameters) {
  for (const auto& [name, description] : {std::pair{"agent", "who handed it in"},
                                          {"status", "what became of it"},
                                          {"model", "of its settings"},
                                          {"device", "of its settings"},
                                          {"suite", "of its settings"},
                                          {"text", "in name, notes or script"},
                                          {"finals", "shown: those that the server made, too"}}) {
    parameters.push_back({name, description});
  }
  return parameters;
}

HttpRoute route_of(const char* method, const char* pattern, const char* operation, const char* summary, Access access) {
  HttpRoute route;
  route.method = method;
  route.pattern = pattern;
  route.operation = operation;
  route.summary = summary;
  route.access = access;
  route.checks_query = true;
  for (const RouteParameter& parameter : path_parameters()) {
    if (route.pattern.find(fmt::format("{{{}}}", parameter.name)) != std::string::npos)
      route.path_parameters.push_back(parameter);
  }
  return route;
}

void takes_json(HttpRoute& route, json schema) {
  route.consumes = {"application/json"};
  route.body_schema = std::move(schema);
}

void gives_json(HttpRoute& route, json schema, int status) {
  route.answers.push_back({status, route.summary, "application/json", std::move(schema)});
}

void gives_artifact(HttpRoute& route) {
  route.answers = {{200, "A document", "application/json", json::object()}, {200, "A text", "text/plain", schemas::text()}};
}

}  // namespace sluice
