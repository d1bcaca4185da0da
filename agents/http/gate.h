#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <semaphore>
#include <string>
#include <vector>

#include "agents/http/http_message.h"
#include "agents/http/router.h"
#include "agents/http/token_guesses.h"

namespace sluice {

/// What stands between a client and a handler.
struct GateOptions {
  /// Names besides "localhost" under which browsers may reach the server, without a port. IP addresses need no name.
  std::vector<std::string> host_names;
  /// Origins of other sites whose pages may call the server: "https://example.org". None: no cross-origin calls.
  std::vector<std::string> origins;
  bool token_for_reading = false;  // nothing is told without a token, but by routes that are public
  /// Whom a bearer token belongs to; null: there are no tokens, and nobody may write. Called by several threads.
  std::function<std::optional<Identity>(const std::string& token)> authenticate;
  /// How long the caller has to wait before this request, or nothing. Called by several threads.
  std::function<std::optional<std::chrono::seconds>(const HttpRequest&, const HttpRoute&)> rate_limit;
};

/// Checks requests before their bodies are read. Every method throws HttpProblem.
class Gate {
 public:
  explicit Gate(GateOptions options) : options_(std::move(options)) {}

  /// The Host header must name this server: a name that an attacker's DNS leads here is refused (421). A present Origin must be
  /// that host or an allowed one (403).
  void check_site(const HttpRequest& request) const;
  /// Whether the request comes from a page of an allowed other site.
  bool is_allowed_origin(const HttpRequest& request) const;
  /// Whose token it bears, if any. Every token is looked up, so that somebody's is served whoever else comes from its address. Of
  /// an address that tried many that are nobody's the next is refused (429), or, where `route` wants none, counts as none sent.
  std::optional<Identity> identify(const HttpRequest& request, const HttpRoute& route);
  /// The rate limit (429), for `request` with its identity. Before `check_access`: a wrong token counts for the address that
  /// tries it.
  void check_rate(const HttpRequest& request, const HttpRoute& route) const;
  /// The identity against what `route` wants (401, 403).
  void check_access(const HttpRequest& request, const HttpRoute& route) const;

 private:
  bool wants_token(const HttpRoute& route) const;

  std::optional<Identity> look_up(const std::string& token);

  static constexpr std::ptrdiff_t kMostLooks = 4;  // at once, each with a connection to the database: a look takes microseconds
  GateOptions options_;
  TokenGuesses guesses_;
  std::counting_semaphore<kMostLooks> looks_{kMostLooks};
};

/// The names in the query (400), where the route checks them.
void check_query(const HttpRequest& request, const HttpRoute& route);
/// Media type and size of a body before it is read (415, 413).
void check_body(const HttpRequest& request, size_t length, const HttpRoute& route, size_t most);
/// Its length alone, as far as it is known.
void check_length(size_t length, const HttpRoute& route, size_t most);

}  // namespace sluice
