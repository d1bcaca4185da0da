#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "agents/http/router.h"
#include "store/records.h"

// What routes of the harness have in common: reading parameters, writing answers. What is wrong with a request is HttpProblem
// (400).

namespace sluice {

HttpResponse json_answer(const nlohmann::json& document, int status = 200);
/// As a page of its own that runs nothing.
HttpResponse artifact_answer(store::Artifact artifact);
/// The body of a request; `what` names it in messages.
nlohmann::json body_of(const HttpRequest& request, const std::string& what);

int64_t query_number(const HttpRequest& request, const std::string& name, int64_t otherwise, int64_t low, int64_t high);
std::string query_text(const HttpRequest& request, const std::string& name, const std::string& otherwise = {});
/// The {id} of the path.
store::SubmissionId id_of(const HttpRequest& request);
/// A number in the path, `low` or more; `what` names it in messages.
int64_t path_number(const HttpRequest& request, const std::string& name, const std::string& what, int64_t low);
/// A submission's number in the query, if there is one.
std::optional<store::SubmissionId> query_id(const HttpRequest& request, const std::string& name);
store::Filter filter_of(const HttpRequest& request);
/// `metric`, if there is such a one. Throws HttpProblem (422).
std::string known_metric(const std::string& metric);

/// The parameters that `filter_of` reads, and others before them.
std::vector<RouteParameter> with_filters(std::vector<RouteParameter> parameters);
/// A route with all but parameters, answers and handler; it describes what its pattern has in braces.
HttpRoute route_of(const char* method, const char* pattern, const char* operation, const char* summary, Access access);
/// The route takes a JSON document.
void takes_json(HttpRoute& route, nlohmann::json schema);
/// The route answers with a JSON document.
void gives_json(HttpRoute& route, nlohmann::json schema, int status = 200);
/// The route answers with an artifact.
void gives_artifact(HttpRoute& route);

}  // namespace sluice
