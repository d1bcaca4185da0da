#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace sluice::test {

/// A TCP connection to 127.0.0.1, for what no HTTP client would send.
class RawClient {
 public:
  /// `from`: the address of this end, any of this machine's, all of 127.0.0.0/8 among them.
  explicit RawClient(int port, const std::string& from = "127.0.0.1");
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  /// False once the peer takes no more.
  bool send(std::string_view text) const;
  /// What arrives until `end` has been seen, the peer closes or `wait` has passed.
  std::string read_until(std::string_view end, std::chrono::milliseconds wait = std::chrono::seconds(10)) const;
  /// What arrives until the peer closes.
  std::string read_all() const { return read_until({}); }
  /// False once the peer has closed.
  bool is_open() const;
  void close();

 private:
  int socket_;
};

/// Sends `text` on a connection of its own and returns all of the answer.
std::string exchange(int port, std::string_view text);

/// The status of an answer, or 0.
int status_of(std::string_view answer);

}  // namespace sluice::test
