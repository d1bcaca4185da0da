#include "agents/http/connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "agents/http/http_problem.h"

namespace sluice {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr size_t kPiece = size_t{16} << 10;

/// Says that something is awaited, as long as it lives.
class Awaiting {
 public:
  explicit Awaiting(std::atomic<std::chrono::steady_clock::rep>& since) : since_(since) {
    since_ = std::chrono::steady_clock::now().time_since_epoch().count();
  }
  ~Awaiting() { since_ = 0; }
  Awaiting(const Awaiting&) = delete;
  Awaiting& operator=(const Awaiting&) = delete;

 private:
  std::atomic<std::chrono::steady_clock::rep>& since_;
};

int milliseconds_until(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<Milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

template <class GetName>
void read_address(GetName get_name, int socket, std::string& address, int& port) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (get_name(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return;
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (storage.ss_family == AF_INET) {
    sockaddr_in ip{};
    std::memcpy(&ip, &storage, sizeof(ip));
    ::inet_ntop(AF_INET, &ip.sin_addr, text.data(), text.size());
    port = ntohs(ip.sin_port);
  } else if (storage.ss_family == AF_INET6) {
    sockaddr_in6 ip{};
    std::memcpy(&ip, &storage, sizeof(ip));
    ::inet_ntop(AF_INET6, &ip.sin6_addr, text.data(), text.size());
    port = ntohs(ip.sin6_port);
  }
  address = text.data();
}

}  // namespace

Connection::Connection(int socket, int stop_event, const ConnectionLimits& limits)
    : socket_(socket), stop_event_(stop_event), limits_(limits) {
  ::fcntl(socket_, F_SETFD, FD_CLOEXEC);
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // tokens are small and wanted at once
}

Connection::~Connection() {
  if (refused_ || !body_was_read()) linger();
  ::close(socket_);
}

// Closing a socket with unread bytes resets the connection, and the client may never see the answer.
void Connection::linger() const {
  constexpr size_t kMost = size_t{8} << 20;
  const auto deadline = Clock::now() + Milliseconds(500);
  ::shutdown(socket_, SHUT_WR);
  std::array<char, kPiece> scrap{};
  for (size_t read = 0; read < kMost;) {
    std::array<pollfd, 2> wait = {pollfd{socket_, POLLIN, 0}, pollfd{stop_event_, POLLIN, 0}};
    if (::poll(wait.data(), wait.size(), milliseconds_until(deadline)) <= 0 || wait[1].revents != 0) return;
    const ssize_t count = ::recv(socket_, scrap.data(), scrap.size(), MSG_DONTWAIT);
    if (count <= 0) return;
    read += static_cast<size_t>(count);
  }
}

Connection::Received Connection::receive(Clock::time_point deadline, bool until_stop) {
  for (;;) {
    std::array<pollfd, 2> wait = {pollfd{socket_, POLLIN, 0}, pollfd{stop_event_, POLLIN, 0}};
    const int ready = ::poll(wait.data(), until_stop ? 2 : 1, milliseconds_until(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return Received::kClosed;
    if (ready == 0) return Received::kLate;
    if (wait[0].revents == 0) return Received::kStopped;
    std::array<char, kPiece> piece{};
    const ssize_t count = ::recv(socket_, piece.data(), piece.size(), MSG_DONTWAIT);
    if (count > 0) {
      received_.append(piece.data(), static_cast<size_t>(count));
      return Received::kSome;
    }
    if (count == 0 || (errno != EAGAIN && errno != EINTR)) return Received::kClosed;
  }
}

std::optional<HttpHead> Connection::read_head() {
  constexpr std::string_view kEnd = "\r\n\r\n";
  const Awaiting awaiting(awaits_since_);
  if (received_.empty() && receive(Clock::now() + limits_.idle, true) != Received::kSome) return std::nullopt;
  refused_ = true;  // until it has proved to be a request
  const auto deadline = Clock::now() + limits_.head;
  size_t searched = 0;
  size_t end = std::string::npos;
  for (;;) {
    end = received_.find(kEnd, searched);
    if (std::min(end, received_.size()) > limits_.head_bytes) {
      throw HttpProblem(431, fmt::format("the head of a request may have {} bytes", limits_.head_bytes));
    }
    if (end != std::string::npos) break;
    searched = received_.size() - std::min(received_.size(), kEnd.size() - 1);
    const Received now = receive(deadline, true);
    if (now == Received::kLate) throw HttpProblem(408, "the head of the request did not arrive in time");
    if (now != Received::kSome) return std::nullopt;
  }
  const std::string text = received_.substr(0, end + kEnd.size());
  received_.erase(0, text.size());
  HttpHead head = parse_http_head(text);
  body_left_ = head.content_length;
  chunks_left_ = head.has_chunks;
  replay_ = head.method == "HEAD" ? "HEAD / HTTP/1.1\r\n\r\n" : "GET / HTTP/1.1\r\n\r\n";
  refused_ = false;
  return head;
}

std::string Connection::read_body(bool is_asked_for) {
  if (is_asked_for && received_.size() < body_left_) send("HTTP/1.1 100 Continue\r\n\r\n");
  const Awaiting awaiting(awaits_since_);
  const auto deadline = Clock::now() + limits_.body;
  while (received_.size() < body_left_) receive_body(deadline);
  std::string body = received_.substr(0, body_left_);
  received_.erase(0, body_left_);
  body_left_ = 0;
  return body;
}

std::string Connection::read_chunks(bool is_asked_for, const std::function<void(size_t)>& takes) {
  constexpr size_t kMostTrailers = 64;
  if (is_asked_for && received_.empty()) send("HTTP/1.1 100 Continue\r\n\r\n");
  const Awaiting awaiting(awaits_since_);
  const auto deadline = Clock::now() + limits_.body;
  std::string body;
  size_t at = 0;  // of what was received; what is before was read
  while (size_t left = parse_chunk_size(take_line(at, deadline))) {
    takes(body.size() + left);
    while (left > 0) {
      if (at == received_.size()) {
        received_.clear();
        at = 0;
        receive_body(deadline);
      }
      const size_t count = std::min(left, received_.size() - at);
      body.append(received_, at, count);
      at += count;
      left -= count;
    }
    if (!take_line(at, deadline).empty()) throw HttpProblem(400, "a chunk of the body is longer than it says");
  }
  size_t trailers = 0;
  for (std::string line; !(line = take_line(at, deadline)).empty();) {
    check_trailer(line);
    if (++trailers > kMostTrailers) throw HttpProblem(431, "too many fields behind the body");
  }
  received_.erase(0, at);
  chunks_left_ = false;
  return body;
}

std::string Connection::take_line(size_t& at, Clock::time_point deadline) {
  constexpr size_t kLongest = 8000;
  constexpr std::string_view kEnd = "\r\n";
  for (;;) {
    const size_t end = received_.find(kEnd, at);
    if (std::min(end, received_.size()) - at > kLongest)
      throw HttpProblem(400, "a line between the chunks of the body is too long");
    if (end != std::string::npos) {
      std::string line = received_.substr(at, end - at);
      at = end + kEnd.size();
      return line;
    }
    received_.erase(0, at);  // little is left
    at = 0;
    receive_body(deadline);
  }
}

void Connection::receive_body(Clock::time_point deadline) {
  const Received now = receive(deadline, false);
  if (now == Received::kLate) throw HttpProblem(408, "the body of the request did not arrive in time");
  if (now != Received::kSome) throw HttpProblem(400, "the body of the request is shorter than it says");
}

bool Connection::is_open() const {
  pollfd state{socket_, POLLRDHUP, 0};
  return ::poll(&state, 1, 0) <= 0;  // hang-ups and errors are reported unasked
}

std::optional<std::chrono::steady_clock::time_point> Connection::awaits_since() const {
  const Clock::rep since = awaits_since_;
  return since == 0 ? std::nullopt : std::optional(Clock::time_point(Clock::duration(since)));
}

void Connection::shut_down() const { ::shutdown(socket_, SHUT_RDWR); }

bool Connection::send(std::string_view text) {
  // A client that reads a byte now and then is as good as none.
  constexpr int64_t kLeastBytesPerMillisecond = 16;
  const auto deadline =
      Clock::now() + limits_.write + Milliseconds(static_cast<int64_t>(text.size()) / kLeastBytesPerMillisecond);
  while (!text.empty()) {
    const ssize_t count = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      text.remove_prefix(static_cast<size_t>(count));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return false;
    pollfd writable{socket_, POLLOUT, 0};
    const int left = milliseconds_until(deadline);
    if (left <= 0 || ::poll(&writable, 1, left) == 0) return false;
  }
  return true;
}

ssize_t Connection::read(char* data, size_t size) {
  const size_t count = std::min(size, replay_.size());
  std::copy_n(replay_.data(), count, data);
  replay_.remove_prefix(count);
  return static_cast<ssize_t>(count);
}

ssize_t Connection::write(const char* data, size_t size) { return send({data, size}) ? static_cast<ssize_t>(size) : -1; }

std::string Connection::remote_address() const {
  std::string address;
  int port = 0;
  get_remote_ip_and_port(address, port);
  return address;
}

void Connection::get_remote_ip_and_port(std::string& address, int& port) const {
  read_address(::getpeername, socket_, address, port);
}

void Connection::get_local_ip_and_port(std::string& address, int& port) const {
  read_address(::getsockname, socket_, address, port);
}

}  // namespace sluice
