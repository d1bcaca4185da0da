#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "agents/http/http_message.h"
#include "agents/http/http_problem.h"

namespace sluice {

/// Who may call a route.
enum class Access : uint8_t {
  kPublic,  // everyone, always
  kRead,    // everyone, unless the server wants a token for reading, too
  kWrite,   // whoever has a token
  kAdmin,   // whoever has a token of an administrator
};

/// A parameter in the path or the query of an address, or a header field.
struct RouteParameter {
  std::string name;
  std::string description;
  nlohmann::json schema = {{"type", "string"}};
};

/// One of the answers that a route may give, for the OpenAPI document.
struct RouteAnswer {
  int status = 200;
  std::string description;
  std::string media_type = "application/json";  // empty: no body
  nlohmann::json schema = nlohmann::json::object();
};

/// What the server does at an address, and what it says of it in the OpenAPI document.
struct HttpRoute {
  std::string method;     // GET brings HEAD along
  std::string pattern;    // "/v1/submissions/{id}": a name in braces takes one segment
  std::string operation;  // unique, "getSubmission"
  std::string summary;    // one line
  Access access = Access::kRead;
  bool counts_as_read = false;  // for the rate limit, though it wants a token and is no GET
  std::vector<RouteParameter> path_parameters;
  std::vector<RouteParameter> query;
  bool checks_query = false;            // whether what is not among them, or comes twice, is refused
  std::vector<RouteParameter> headers;  // fields with a meaning of their own here, for the OpenAPI document
  std::vector<std::string> consumes;    // media types of the body; none: it takes no body
  nlohmann::json body_schema = nlohmann::json::object();
  size_t most_body_bytes = 0;  // 0: the server's limit
  std::vector<RouteAnswer> answers;
  /// Turns a refusal into an answer; null: application/problem+json.
  std::function<HttpResponse(const HttpProblem&)> refuse;
  /// Runs in a thread of the connection. May throw HttpProblem, InputError, and anything else for a fault of ours.
  std::function<HttpResponse(const HttpRequest&)> handle;
};

/// The table of routes.
class Router {
 public:
  struct Match {
    const HttpRoute* route = nullptr;  // null: the address exists, the method does not
    std::map<std::string, std::string> path_parameters;
    std::vector<std::string> allowed;  // methods that the address takes
    const HttpRoute* any = nullptr;    // of those, whatever its method
  };

  /// Throws InternalError for a pattern that is none, or a route that is there already.
  void add(HttpRoute route);
  /// `path` is raw; its segments are decoded one by one, so that an encoded "/" is part of a segment. Literal segments go before
  /// parameters. Throws HttpProblem: 404, or 400 for a broken escape.
  Match find(const std::string& method, std::string_view path) const;
  const std::vector<HttpRoute>& routes() const { return routes_; }

 private:
  std::vector<HttpRoute> routes_;
};

}  // namespace sluice
