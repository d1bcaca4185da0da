#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "agents/http/gate.h"
#include "agents/http/router.h"

namespace spdlog {
class logger;
}

namespace sluice {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: any that is free
  GateOptions gate;
  int most_connections = 512;  // each has a thread while it is open; the next one gets 503
  int most_streams = 128;      // of those that have no end of their own; the next one ends another (open_streams.h)
  size_t most_head_bytes = size_t{16} << 10;
  size_t most_body_bytes = size_t{1} << 20;       // where a route says nothing else
  size_t most_bytes_in_hand = size_t{256} << 20;  // of large bodies, all together (bytes_in_hand.h)
  std::chrono::milliseconds idle_timeout{15'000};
  std::chrono::milliseconds head_timeout{10'000};
  std::chrono::milliseconds body_timeout{30'000};
  std::chrono::milliseconds write_timeout{10'000};  // for a piece of an answer, and a millisecond more for every 16 bytes of it
  std::chrono::milliseconds heartbeat{15'000};
  std::chrono::milliseconds stop_timeout{1'000};  // for requests that run when the server stops
  std::string title = "Sluice";                   // of the OpenAPI document
  std::shared_ptr<spdlog::logger> log;            // of requests; null: none
  std::function<void()> lost;                     // called if the server can take no more connections though nobody stopped it
};

/// An HTTP/1.1 server: connections, limits, checks and errors; what it serves are routes that others add. It serves an OpenAPI
/// document of them at /v1/openapi.json itself.
class HttpServer {
 public:
  explicit HttpServer(HttpServerOptions options);
  /// Stops.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Before `start`. Throws InternalError for a route that is wrong.
  void add(HttpRoute route);
  /// Before `start`: how whoever asks for an address that begins with `prefix`, and has no route or none yet, is refused, and
  /// whoever did not come as far as an address. Problem documents where this is not called.
  void refuse_by(std::string prefix, std::function<HttpResponse(const HttpProblem&)> refuse);
  const Router& router() const;

  /// Takes the address, so that `start` cannot fail for it; clients that come before `start` wait. Throws InputError if it cannot
  /// be had.
  void bind();
  /// Listens, and serves in threads of its own. Takes the address if `bind` has not.
  void start();
  /// The port that it listens at.
  int port() const;
  /// "http://127.0.0.1:8080".
  std::string address() const;
  /// Takes no more connections, ends endless streams, gives running requests `stop_timeout` to end, then ends their connections
  /// and waits for their threads. Handlers that wait learn of it by HttpRequest::is_wanted.
  void stop();

 private:
  class Listener;
  HttpServerOptions options_;
  std::string document_;  // OpenAPI's, from `start` on
  std::unique_ptr<Listener> listener_;
};

}  // namespace sluice
