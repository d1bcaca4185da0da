#pragma once

#include <httplib.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "agents/http/bytes_in_hand.h"
#include "agents/http/connection.h"
#include "agents/http/http_server.h"
#include "agents/http/open_streams.h"

namespace sluice {

/// The HTTP library's server with connections of our own: accepts, serves each connection in one thread, ends them.
class HttpServer::Listener final : public httplib::Server {
 public:
  explicit Listener(const HttpServerOptions& options);
  ~Listener() override;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void bind();
  void start();
  void stop_serving();
  int port() const { return port_; }
  void refuse_by(std::string prefix, std::function<HttpResponse(const HttpProblem&)> refuse) {
    refused_prefix_ = std::move(prefix);
    refuse_ = std::move(refuse);
  }

  Router router;

 private:
  using Clock = std::chrono::steady_clock;

  /// A connection, and the request that its thread is at.
  struct Current {
    Connection* connection = nullptr;
    std::string network;     // of the client
    bool dismissed = false;  // shut down to make room
    HttpHead head;
    HttpRequest request;
    const HttpRoute* route = nullptr;         // or one of the same address, which knows how its clients are refused
    int status = 0;                           // of the answer, for the log
    std::vector<std::shared_ptr<void>> held;  // room for large bodies, until the answer is sent
    size_t held_bytes = 0;                    // of these, for the request's
  };

  // Of one connection, in its thread.
  bool process_and_close_socket(socket_t socket) override;
  /// Where connections become few, shuts down those that wait for a client: see `place_to_give_up`. With the lock held.
  void make_room(const std::string& newcomer);
  bool is_crowded(size_t open) const { return open * 4 > static_cast<size_t>(options_.most_connections) * 3; }
  void serve(Connection& connection);
  /// `is_last`: the connection takes no more requests, and the answer says so. False if it is to be closed.
  bool serve_one(Connection& connection, HttpHead head, bool is_last);
  void answer(Current& current, httplib::Response& response);
  HttpResponse handle(Current& current);
  std::string read_body(Current& current, const HttpRoute& route);
  /// Takes room for the body of a request before so many bytes of it are read. Throws HttpProblem (503).
  void hold_body(Current& current, size_t length);
  /// Frees the body, and gives its room to others.
  static void release_body(Current& current);
  /// Takes room for an answer until it is sent; where there is none the answer says so instead.
  void hold_answer(Current& current, HttpResponse& answer);
  HttpResponse options_answer(const Current& current, const Router::Match& match) const;
  HttpResponse refusal(const Current& current, const HttpProblem& problem) const;
  /// What is said where the HTTP library does not come to speak.
  std::string bare_answer(const HttpProblem& problem) const;
  bool send_stream(BodyStream& stream, const Connection& connection, httplib::DataSink& sink) const;
  void log_request(const Current& current, Clock::time_point started) const;
  bool is_wanted(const Connection& connection) const { return !expired_ && connection.is_open(); }

  const HttpServerOptions& options_;
  std::string refused_prefix_;
  std::function<HttpResponse(const HttpProblem&)> refuse_;  // where there is no route; null: problem documents
  Gate gate_;
  OpenStreams streams_;
  BytesInHand bytes_in_hand_;
  int stop_event_ = -1;
  int port_ = 0;
  std::thread thread_;         // accepts
  std::thread::id accepting_;  // its id
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> expired_ = false;  // running requests have had their time
  std::atomic<uint64_t> last_id_ = 0;
  uint64_t instance_ = 0;  // makes request ids differ between runs

  std::mutex mutex_;
  std::condition_variable closed_;
  std::unordered_map<std::thread::id, Current> connections_;  // by the thread that serves them
};

}  // namespace sluice
