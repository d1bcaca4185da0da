#include "tests/http/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <stdexcept>

namespace sluice::test {

RawClient::RawClient(int port, const std::string& from) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in own{};
  own.sin_family = AF_INET;
  ::inet_pton(AF_INET, from.c_str(), &own.sin_addr);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(socket_, reinterpret_cast<sockaddr*>(&own), sizeof(own)) != 0 ||
      ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    close();
    throw std::runtime_error("no connection to the server");
  }
}

RawClient::~RawClient() { close(); }

void RawClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool RawClient::send(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t count = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

std::string RawClient::read_until(std::string_view end, std::chrono::milliseconds wait) const {
  const auto deadline = std::chrono::steady_clock::now() + wait;
  std::string text;
  while (end.empty() || text.find(end) == std::string::npos) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd readable{socket_, POLLIN, 0};
    if (left <= 0 || ::poll(&readable, 1, static_cast<int>(left)) <= 0) break;
    std::array<char, 4096> piece{};
    const ssize_t count = ::recv(socket_, piece.data(), piece.size(), 0);
    if (count <= 0) break;
    text.append(piece.data(), static_cast<size_t>(count));
  }
  return text;
}

bool RawClient::is_open() const {
  pollfd state{socket_, POLLRDHUP, 0};
  return ::poll(&state, 1, 0) <= 0;
}

std::string exchange(int port, std::string_view text) {
  const RawClient client(port);
  client.send(text);
  return client.read_all();
}

int status_of(std::string_view answer) {
  constexpr std::string_view kBegin = "HTTP/1.1 ";
  int status = 0;
  if (answer.starts_with(kBegin)) std::from_chars(answer.data() + kBegin.size(), answer.data() + answer.size(), status);
  return status;
}

}  // namespace sluice::test
