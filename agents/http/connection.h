#pragma once

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "agents/http/http_head.h"

namespace sluice {

struct ConnectionLimits {
  size_t head_bytes = size_t{16} << 10;
  std::chrono::milliseconds idle{15'000};   // before the first byte of a request
  std::chrono::milliseconds head{10'000};   // from that byte to the end of the head, however slowly it drips
  std::chrono::milliseconds body{30'000};   // from the end of the head to the end of the body
  std::chrono::milliseconds write{10'000};  // for a piece of an answer, and a millisecond more for every 16 bytes of it
};

/// The socket of one client, seen by the HTTP library as a stream. The library bounds neither the size of a head nor the time
/// that it takes, and acts on fields (Range, Expect, codings) before anyone may object. So heads are read and checked here, and
/// the library reads a plain "GET /" or "HEAD /" in their stead: it writes answers, and no more. Used by one thread, but for
/// `awaits_since` and `shut_down`.
class Connection final : public httplib::Stream {
 public:
  /// Closes `socket` at the end. `stop_event` becomes readable when the server stops: nobody waits for another request then.
  Connection(int socket, int stop_event, const ConnectionLimits& limits);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Waits for the next request. Nothing if the client closed, said nothing for too long, or the server stops. Throws
  /// HttpProblem, after which the connection is to be closed.
  std::optional<HttpHead> read_head();
  /// The body that belongs to the last head; `is_asked_for`: the client waits for a word before it sends it. Throws HttpProblem
  /// (400, 408).
  std::string read_body(bool is_asked_for);
  /// The same of a body that comes in chunks. `takes` is told how long it is with each chunk, before that is read, and throws
  /// where it is too long.
  std::string read_chunks(bool is_asked_for, const std::function<void(size_t)>& takes);
  /// False as long as a body has not been read: what follows on the connection is no request.
  bool body_was_read() const { return body_left_ == 0 && !chunks_left_; }
  /// False once the client has closed its side, or the connection was shut down.
  bool is_open() const;
  /// Since when the client has owed a request, or the rest of one; nothing while none is awaited. For other threads.
  std::optional<std::chrono::steady_clock::time_point> awaits_since() const;
  std::string remote_address() const;
  /// Ends reads and writes of the thread that serves the connection. For other threads.
  void shut_down() const;
  /// Sends all of `text`. False if the client does not take it.
  bool send(std::string_view text);

  bool is_readable() const override { return !replay_.empty(); }
  bool is_writable() const override { return is_open(); }
  ssize_t read(char* data, size_t size) override;
  ssize_t write(const char* data, size_t size) override;
  void get_remote_ip_and_port(std::string& address, int& port) const override;
  void get_local_ip_and_port(std::string& address, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Received : uint8_t { kSome, kClosed, kLate, kStopped };
  Received receive(Clock::time_point deadline, bool until_stop);
  /// More of a body. Throws HttpProblem (400, 408).
  void receive_body(Clock::time_point deadline);
  /// The next line of what is between the chunks of a body, without its CR LF; `at`: where it begins in what was received.
  std::string take_line(size_t& at, Clock::time_point deadline);
  void linger() const;

  int socket_;
  int stop_event_;
  ConnectionLimits limits_;
  std::string received_;     // beyond the head
  std::string_view replay_;  // for the library to read
  size_t body_left_ = 0;
  bool chunks_left_ = false;
  bool refused_ = false;                      // bytes may arrive that nobody will read
  std::atomic<Clock::rep> awaits_since_ = 0;  // 0: nothing is awaited
};

}  // namespace sluice
