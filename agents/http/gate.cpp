#include "agents/http/gate.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace sluice {
namespace {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), HeaderNameLess::lower);
  return lower;
}

bool is_ip_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  if (host.starts_with('[') && host.ends_with(']')) {
    return ::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), address.data()) == 1;
  }
  return ::inet_pton(AF_INET, host.c_str(), address.data()) == 1;
}

/// The name in "name:port" or "[address]:port", in lower case.
std::string host_name(std::string_view authority) {
  const size_t bracket = authority.find(']');
  const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  return lower_case(authority.substr(0, colon));
}

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::any_of(list.begin(), list.end(), [&](const std::string& known) { return lower_case(known) == item; });
}

/// The token of "Authorization: Bearer TOKEN", or nothing.
std::optional<std::string> bearer_token(const HttpRequest& request) {
  constexpr std::string_view kScheme = "bearer ";
  const std::optional<std::string> header = request.header("Authorization");
  if (!header || !lower_case(std::string_view(*header).substr(0, kScheme.size())).starts_with(kScheme)) return std::nullopt;
  return header->substr(kScheme.size());
}

[[noreturn]] void refuse_for_now(std::chrono::seconds wait, const std::string& why) {
  throw HttpProblem(429, fmt::format("{}; try again in {} s", why, wait.count()))
      .with_header("Retry-After", std::to_string(wait.count()));
}

}  // namespace

void Gate::check_site(const HttpRequest& request) const {
  const std::string authority = lower_case(request.header("Host").value_or("localhost"));
  const std::string host = host_name(authority);
  if (host != "localhost" && !is_ip_address(host) && !contains(options_.host_names, host)) {
    throw HttpProblem(421,
                      "the Host header names another server; call this one by its IP address, or allow the name where it starts");
  }
  const std::optional<std::string> origin = request.header("Origin");
  if (!origin || lower_case(*origin) == "http://" + authority || is_allowed_origin(request)) return;
  throw HttpProblem(403, "pages of other sites may not call this server; allow the origin where the server starts");
}

bool Gate::is_allowed_origin(const HttpRequest& request) const {
  const std::optional<std::string> origin = request.header("Origin");
  return origin && contains(options_.origins, lower_case(*origin));
}

bool Gate::wants_token(const HttpRoute& route) const {
  return route.access == Access::kWrite || route.access == Access::kAdmin ||
         (route.access == Access::kRead && options_.token_for_reading);
}

std::optional<Identity> Gate::identify(const HttpRequest& request, const HttpRoute& route) {
  const std::optional<std::string> token = bearer_token(request);
  if (!token || !options_.authenticate) return std::nullopt;
  std::optional<Identity> identity = look_up(*token);
  if (identity) return identity;
  const auto wait = guesses_.count(request.remote_address);
  if (wait && wants_token(route)) refuse_for_now(*wait, "too many tokens that nobody has come from this address");
  return std::nullopt;
}

std::optional<Identity> Gate::look_up(const std::string& token) {
  /// A look, as long as it lives.
  class Look {
   public:
    explicit Look(std::counting_semaphore<kMostLooks>& looks) : looks_(looks) { looks_.acquire(); }
    ~Look() { looks_.release(); }
    Look(const Look&) = delete;
    Look& operator=(const Look&) = delete;

   private:
    std::counting_semaphore<kMostLooks>& looks_;
  };
  const Look look(looks_);
  return options_.authenticate(token);
}

void Gate::check_access(const HttpRequest& request, const HttpRoute& route) const {
  if (!wants_token(route)) return;
  if (!request.identity) {
    const bool has_token = bearer_token(request).has_value();
    throw HttpProblem(401, has_token ? "the token is not known here" : "a token is wanted: Authorization: Bearer TOKEN")
        .with_header("WWW-Authenticate", has_token ? "Bearer error=\"invalid_token\"" : "Bearer");
  }
  if (route.access == Access::kAdmin && request.identity->role != Role::kAdmin) {
    throw HttpProblem(403, "only administrators may do this");
  }
}

void Gate::check_rate(const HttpRequest& request, const HttpRoute& route) const {
  if (!options_.rate_limit) return;
  if (const auto wait = options_.rate_limit(request, route)) refuse_for_now(*wait, "too many requests");
}

void check_query(const HttpRequest& request, const HttpRoute& route) {
  if (!route.checks_query) return;
  std::vector<std::string> known;
  for (const RouteParameter& parameter : route.query) known.push_back(parameter.name);
  for (const auto& [name, value] : request.query) {
    if (!contains(known, name)) {
      throw HttpProblem(400, fmt::format("\"{:.60}\" is no query parameter of this address", name))
          .with("hint", known.empty() ? "it takes none" : fmt::format("it takes {}", fmt::join(known, ", ")));
    }
    if (request.query.count(name) > 1) throw HttpProblem(400, fmt::format("the query parameter \"{}\" comes twice", name));
  }
}

void check_length(size_t length, const HttpRoute& route, size_t most) {
  constexpr size_t kNothing = 16;  // clients that always send a document send {}: it is read, and nobody looks at it
  if (route.consumes.empty() && length > kNothing) throw HttpProblem(413, "this address takes no body");
  const size_t limit = route.most_body_bytes > 0 ? route.most_body_bytes : most;
  if (length > limit) throw HttpProblem(413, fmt::format("a body of {} bytes; at most {} are taken here", length, limit));
}

void check_body(const HttpRequest& request, size_t length, const HttpRoute& route, size_t most) {
  check_length(length, route, most);
  if (route.consumes.empty()) return;
  const std::string coding = lower_case(request.header("Content-Encoding").value_or("identity"));
  if (coding != "identity") throw HttpProblem(415, "send the body as it is, without Content-Encoding");
  const std::string type = request.header("Content-Type").value_or("");
  std::string plain = lower_case(std::string_view(type).substr(0, type.find(';')));
  while (plain.ends_with(' ')) plain.pop_back();
  if (contains(route.consumes, plain)) return;
  throw HttpProblem(415, fmt::format("the Content-Type must be {}", fmt::join(route.consumes, " or ")))
      .with_header("Accept-Post", fmt::format("{}", fmt::join(route.consumes, ", ")));
}

}  // namespace sluice
