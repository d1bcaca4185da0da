#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace sluice {

/// Names of header fields are compared without regard to the case of ASCII letters.
struct HeaderNameLess {
  using is_transparent = void;  // the standard library's name for it
  static char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
  bool operator()(std::string_view a, std::string_view b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [](char x, char y) { return lower(x) < lower(y); });
  }
};
using HttpHeaders = std::multimap<std::string, std::string, HeaderNameLess>;

enum class Role : uint8_t { kAgent, kAdmin };

/// Whom a token belongs to.
struct Identity {
  std::string name;
  Role role = Role::kAgent;
};

/// A request as handlers see it: it has passed every check of the server, and its body is there.
struct HttpRequest {
  std::string method;
  std::string path;                                    // as it was sent, without the query
  std::map<std::string, std::string> path_parameters;  // of the route's pattern, decoded
  std::multimap<std::string, std::string> query;       // decoded
  HttpHeaders headers;
  std::string body;
  std::string id;                    // of this request, for the log; the answer bears it as X-Request-Id
  std::string remote_address;        // the peer's, not what a proxy says
  std::optional<Identity> identity;  // who sent it, if a token says so
  std::function<bool()> is_wanted;   // false once the client has gone or the server stops; for handlers that wait
  /// For handlers that wait and need the body no more: frees it, and others have its room.
  std::function<void()> end_body;

  /// The first value of a header, or nothing.
  std::optional<std::string> header(std::string_view name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::nullopt : std::optional(found->second);
  }
  /// The first value of a query parameter, or nothing.
  std::optional<std::string> query_value(const std::string& name) const {
    const auto found = query.find(name);
    return found == query.end() ? std::nullopt : std::optional(found->second);
  }
};

/// A body that is made while it is sent. Owned by the thread that sends it; destroyed when it has ended or the client has gone,
/// which is how its producer learns of it.
class BodyStream {
 public:
  BodyStream() = default;
  virtual ~BodyStream() = default;
  BodyStream(const BodyStream&) = delete;
  BodyStream& operator=(const BodyStream&) = delete;

  /// The next piece, waiting for it at most `wait`: empty if there is none yet, nothing after the last.
  virtual std::optional<std::string> next(std::chrono::milliseconds wait) = 0;
  /// What may be sent when nothing else was for a while, so that both sides notice a broken connection.
  virtual std::string heartbeat() const { return {}; }
  /// Whether it has no end of its own: a server that stops does not wait for it.
  virtual bool endless() const { return false; }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  /// These replace what the server would say itself, such as Cache-Control and Content-Security-Policy.
  std::map<std::string, std::string> headers;
  std::shared_ptr<BodyStream> stream;  // instead of `body`
};

}  // namespace sluice
