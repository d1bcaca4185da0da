#include "agents/http/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "agents/http/http_head.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

/// "/a/b" is "a" and "b", "/" one empty segment.
std::vector<std::string> split(std::string_view path) {
  std::vector<std::string> segments;
  while (path.starts_with('/')) {
    path.remove_prefix(1);
    const size_t end = std::min(path.find('/'), path.size());
    segments.emplace_back(path.substr(0, end));
    path.remove_prefix(end);
  }
  return segments;
}

bool is_parameter(const std::string& segment) { return segment.starts_with('{') && segment.ends_with('}'); }

std::string parameter_name(const std::string& segment) { return segment.substr(1, segment.size() - 2); }

std::optional<std::map<std::string, std::string>> match(const std::vector<std::string>& pattern,
                                                        const std::vector<std::string>& path) {
  if (pattern.size() != path.size()) return std::nullopt;
  std::map<std::string, std::string> parameters;
  for (size_t i = 0; i < path.size(); ++i) {
    if (is_parameter(pattern[i])) {
      if (path[i].empty()) return std::nullopt;
      parameters[parameter_name(pattern[i])] = path[i];
    } else if (pattern[i] != path[i]) {
      return std::nullopt;
    }
  }
  return parameters;
}

}  // namespace

void Router::add(HttpRoute route) {
  const auto wrong = [&](const std::string& what) {
    throw InternalError(fmt::format("route {} {}: {}", route.method, route.pattern, what));
  };
  if (!route.pattern.starts_with('/') || !route.handle || route.operation.empty()) wrong("pattern, handler or name is missing");
  size_t parameters = 0;
  for (const std::string& segment : split(route.pattern)) {
    if (!is_parameter(segment)) continue;
    ++parameters;
    const auto is_named = [&](const RouteParameter& parameter) { return parameter.name == parameter_name(segment); };
    if (std::none_of(route.path_parameters.begin(), route.path_parameters.end(), is_named)) wrong(segment + " is not described");
  }
  if (parameters != route.path_parameters.size()) wrong("it describes parameters that it does not have");
  for (const HttpRoute& known : routes_) {
    if (known.operation == route.operation) wrong("its name is taken");
    if (known.method == route.method && known.pattern == route.pattern) wrong("it is there already");
  }
  routes_.push_back(std::move(route));
}

Router::Match Router::find(const std::string& method, std::string_view path) const {
  std::vector<std::string> segments = split(path);
  for (std::string& segment : segments) segment = decode_percent(segment);
  const std::string wanted = method == "HEAD" ? "GET" : method;
  Match found;
  for (const HttpRoute& route : routes_) {
    auto parameters = match(split(route.pattern), segments);
    if (!parameters) continue;
    if (found.any == nullptr) found.any = &route;
    found.allowed.push_back(route.method);
    if (route.method == "GET") found.allowed.emplace_back("HEAD");
    const bool better = found.route == nullptr || parameters->size() < found.path_parameters.size();
    if (route.method != wanted || !better) continue;
    found.route = &route;
    found.path_parameters = std::move(*parameters);
  }
  if (found.any == nullptr) throw HttpProblem(404, "there is nothing at this address");
  found.allowed.emplace_back("OPTIONS");
  std::sort(found.allowed.begin(), found.allowed.end());
  found.allowed.erase(std::unique(found.allowed.begin(), found.allowed.end()), found.allowed.end());
  return found;
}

}  // namespace sluice
