#include "agents/http/listener.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <random>

#include "agents/http/connection_threads.h"
#include "agents/http/network.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr size_t kMostRequests = 1000;  // of one connection

}  // namespace

HttpServer::Listener::Listener(const HttpServerOptions& options)
    : options_(options),
      gate_(options.gate),
      streams_(static_cast<size_t>(options.most_streams)),
      bytes_in_hand_(options.most_bytes_in_hand),
      stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      instance_((uint64_t{std::random_device()()} << 32) | std::random_device()()) {
  new_task_queue = [this] { return new ConnectionThreads(options_.most_connections); };
  // The library's own choice would let two servers have one port.
  set_socket_options([](socket_t socket) {
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  });
  set_keep_alive_max_count(kMostRequests);
  set_keep_alive_timeout(std::chrono::duration_cast<std::chrono::seconds>(options_.idle_timeout).count());
  set_pre_routing_handler([this](const httplib::Request&, httplib::Response& response) {
    Current* current = nullptr;
    {
      const std::lock_guard lock(mutex_);
      current = &connections_.at(std::this_thread::get_id());
    }
    answer(*current, response);
    return HandlerResponse::Handled;
  });
}

HttpServer::Listener::~Listener() {
  stop_serving();
  if (port_ > 0 && !stopping_) ::close(svr_sock_.exchange(INVALID_SOCKET));  // bound, and never started
  ::close(stop_event_);
}

void HttpServer::Listener::bind() {
  const std::string& host = options_.host;
  if (port_ > 0) throw InternalError("a server takes its address once");
  const int port = options_.port == 0 ? bind_to_any_port(host) : bind_to_port(host, options_.port) ? options_.port : -1;
  if (port <= 0) {
    throw InputError(fmt::format("{}:{}: cannot listen there", host, options_.port),
                     "is the port in use, or the address not this machine's? --port 0 takes any that is free");
  }
  port_ = port;
}

void HttpServer::Listener::start() {
  if (port_ == 0) bind();
  ::listen(svr_sock_, SOMAXCONN);  // the library lets five clients wait
  thread_ = std::thread([this] {
    accepting_ = std::this_thread::get_id();
    listen_after_bind();
    if (stopping_) return;
    if (options_.log) options_.log->critical("{}:{} takes no more connections", options_.host, port_);
    if (options_.lost) options_.lost();
  });
  while (!is_running()) std::this_thread::sleep_for(Milliseconds(1));
}

void HttpServer::Listener::stop_serving() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  ::eventfd_write(stop_event_, 1);
  stop();
  {
    std::unique_lock lock(mutex_);
    closed_.wait_for(lock, options_.stop_timeout, [&] { return connections_.empty(); });
    expired_ = true;
    for (const auto& [thread, current] : connections_) current.connection->shut_down();
  }
  thread_.join();  // which has waited for the others
}

bool HttpServer::Listener::process_and_close_socket(socket_t socket) {
  const ConnectionLimits limits{options_.most_head_bytes, options_.idle_timeout, options_.head_timeout, options_.body_timeout,
                                options_.write_timeout};
  const auto thread = std::this_thread::get_id();
  Connection connection(socket, stop_event_, limits);
  const bool is_too_many = thread == accepting_;
  {
    const std::lock_guard lock(mutex_);
    if (expired_) return false;
    const std::string network = network_of(connection.remote_address());
    if (!is_too_many) {
      Current& current = connections_[thread];
      current.connection = &connection;
      current.network = network;
    }
    make_room(network);
  }
  if (is_too_many) {
    ::fcntl(socket, F_SETFL, O_NONBLOCK);
    connection.send(bare_answer(HttpProblem(503, "too many connections; try again in a moment")));
    return false;
  }
  serve(connection);
  const std::lock_guard lock(mutex_);
  connections_.erase(thread);
  closed_.notify_all();
  return true;
}

std::string HttpServer::Listener::bare_answer(const HttpProblem& problem) const {
  const HttpResponse response = refuse_ ? refuse_(problem) : problem_response(problem);
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{}",
      problem.status(), problem.title(), response.content_type, response.body.size(), response.body);
}

void HttpServer::Listener::make_room(const std::string& newcomer) {
  constexpr Milliseconds kPatience(250);  // with a client that has just come, or been answered
  const auto too_long = Clock::now() - kPatience;
  std::vector<Current*> staying;
  std::vector<HeldPlace> places;
  for (auto& [thread, current] : connections_) {
    if (current.dismissed) continue;
    const auto since = current.connection->awaits_since();
    staying.push_back(&current);
    places.push_back({current.network, since.value_or(too_long), since && *since <= too_long});
  }
  while (is_crowded(staying.size())) {
    const std::optional<size_t> chosen = place_to_give_up(places, newcomer);
    if (!chosen) return;
    Current& current = *staying[*chosen];
    current.dismissed = true;
    current.connection->shut_down();
    staying.erase(staying.begin() + static_cast<std::ptrdiff_t>(*chosen));
    places.erase(places.begin() + static_cast<std::ptrdiff_t>(*chosen));
  }
}

void HttpServer::Listener::serve(Connection& connection) {
  try {
    bool more = true;
    for (size_t count = 1; more; ++count) {
      std::optional<HttpHead> head = connection.read_head();
      if (!head) return;
      more = serve_one(connection, std::move(*head), count == kMostRequests);
    }
  } catch (const HttpProblem& problem) {
    connection.send(bare_answer(problem));
    if (options_.log) options_.log->info("- - {} {}", problem.status(), problem.what());
  } catch (const std::exception& error) {
    if (options_.log) options_.log->error("a connection ended: {}", error.what());
  }
}

bool HttpServer::Listener::serve_one(Connection& connection, HttpHead head, bool is_last) {
  const auto started = Clock::now();
  const bool persistent = head.persistent;
  Current* current = nullptr;
  size_t open = 0;
  {
    const std::lock_guard lock(mutex_);
    current = &connections_.at(std::this_thread::get_id());
    *current = {&connection, std::move(current->network), current->dismissed, std::move(head), {}, nullptr, 0, {}, 0};
    open = connections_.size();
  }
  // Where threads become few, nobody keeps one for a request that may never come.
  const bool last = is_last || !persistent || stopping_ || is_crowded(open);
  bool closed = false;
  const bool sent = process_request(connection, last, closed, [](httplib::Request&) {});
  log_request(*current, started);
  current->held.clear();
  return sent && !last && !closed && connection.body_was_read() && !stopping_;
}

}  // namespace sluice
