#include "tests/harness/tls_tunnel.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "scripting/base/error.h"

namespace sluice::testing {
namespace {

constexpr int kTurn = 20;  // ms between looks at whether it is over

template <typename T>
T* made(T* pointer, const char* what) {
  if (pointer == nullptr) throw InternalError(std::string("OpenSSL made no ") + what);
  return pointer;
}

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

/// For 127.0.0.1 and an hour, signed by `key` itself.
Certificate certificate_of(EVP_PKEY* key) {
  constexpr int64_t kHour = 3600;
  Certificate certificate(made(X509_new(), "certificate"), X509_free);
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kHour);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kHour);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME* name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("tunnel"), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  const std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> address(
      made(X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1"), "extension"), X509_EXTENSION_free);
  X509_add_ext(certificate.get(), address.get(), -1);
  if (X509_sign(certificate.get(), key, EVP_sha256()) == 0) throw InternalError("OpenSSL signs no certificate");
  return certificate;
}

void write_pem(X509* certificate, const std::string& path) {
  std::FILE* file = made(std::fopen(path.c_str(), "w"), "file");
  const bool written = PEM_write_X509(file, certificate) == 1;
  if (std::fclose(file) != 0 || !written) throw InternalError(path + " is not written");
}

sockaddr_in local(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool send_all(int socket, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(socket, data, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

/// One turn of handing on what either side says; false when one has ended.
bool exchange(SSL* tls, int client, int server) {
  std::array<char, 4096> data{};
  std::array<pollfd, 2> sides = {{{client, POLLIN, 0}, {server, POLLIN, 0}}};
  if (SSL_pending(tls) == 0 && ::poll(sides.data(), sides.size(), kTurn) < 0) return false;
  if (SSL_pending(tls) > 0 || sides[0].revents != 0) {
    const int size = SSL_read(tls, data.data(), static_cast<int>(data.size()));
    if (size <= 0 || !send_all(server, data.data(), static_cast<size_t>(size))) return false;
  }
  if (sides[1].revents != 0) {
    const ssize_t size = ::recv(server, data.data(), data.size(), 0);
    if (size <= 0 || SSL_write(tls, data.data(), static_cast<int>(size)) <= 0) return false;
  }
  return true;
}

}  // namespace

TlsTunnel::TlsTunnel(int server_port, const std::string& certificate)
    : server_port_(server_port), context_(made(SSL_CTX_new(TLS_server_method()), "context"), SSL_CTX_free) {
  const Key key(made(EVP_RSA_gen(2048), "key"), EVP_PKEY_free);
  const Certificate own = certificate_of(key.get());
  write_pem(own.get(), certificate);
  if (SSL_CTX_use_certificate(context_.get(), own.get()) != 1 || SSL_CTX_use_PrivateKey(context_.get(), key.get()) != 1) {
    throw InternalError("OpenSSL does not take the certificate");
  }
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = local(0);
  socklen_t size = sizeof(address);
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, SOMAXCONN) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw InternalError("no port for the tunnel");
  }
  port_ = ntohs(address.sin_port);
  accepting_ = std::thread([this] { accept_all(); });
}

TlsTunnel::~TlsTunnel() {
  stopped_ = true;
  accepting_.join();
  connections_.clear();
  ::close(listener_);
}

void TlsTunnel::accept_all() {
  while (!stopped_) {
    pollfd waiting{listener_, POLLIN, 0};
    if (::poll(&waiting, 1, kTurn) <= 0) continue;
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client >= 0) connections_.emplace_back([this, client] { serve(client); });
  }
}

void TlsTunnel::serve(int client) const {
  const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = local(server_port_);
  const std::unique_ptr<SSL, decltype(&SSL_free)> tls(made(SSL_new(context_.get()), "connection"), SSL_free);
  SSL_set_fd(tls.get(), client);
  if (::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 && SSL_accept(tls.get()) == 1) {
    while (!stopped_ && exchange(tls.get(), client, server)) {
    }
    SSL_shutdown(tls.get());
  }
  ::close(server);
  ::close(client);
}

}  // namespace sluice::testing
