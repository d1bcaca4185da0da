#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

struct ssl_ctx_st;

namespace sluice::testing {

/// What stands before a server in the open: takes TLS connections at 127.0.0.1 and hands what they say to a port, which it
/// answers for. Its certificate is its own authority.
class TlsTunnel {
 public:
  /// Writes the certificate (PEM) to `certificate`. Throws InternalError.
  TlsTunnel(int server_port, const std::string& certificate);
  ~TlsTunnel();
  TlsTunnel(const TlsTunnel&) = delete;
  TlsTunnel& operator=(const TlsTunnel&) = delete;

  int port() const { return port_; }

 private:
  void accept_all();
  void serve(int client) const;

  const int server_port_;
  std::shared_ptr<ssl_ctx_st> context_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopped_ = false;
  std::thread accepting_;
  std::vector<std::jthread> connections_;  // of the accepting thread
};

}  // namespace sluice::testing
