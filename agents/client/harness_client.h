#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {

/// Where a server is, and who asks.
struct ServerAccess {
  std::string address;  // "http://127.0.0.1:8080", "https://sluice.example"
  std::string token;    // of an agent; may be empty for reading

  /// What SLUICE_SERVER and SLUICE_TOKEN say: this machine's usual server and no token unless they are set.
  static ServerAccess from_environment();
};

/// A server refuses, with its words and its hint, or does not answer.
class ServerError : public InputError {
 public:
  /// `wait`: how long the server asks to wait, if it does.
  ServerError(int status, const std::string& message, std::string hint = {}, std::chrono::seconds wait = {})
      : InputError(message, std::move(hint)), status_(status), wait_(wait) {}

  /// Of HTTP; 0: there was no answer.
  int status() const { return status_; }
  /// Whether the same request may succeed soon: nobody answered, there were too many requests, or the server has trouble. Not so
  /// if the server asks for a long wait, as it does of a quota that is used up.
  bool may_pass() const {
    constexpr std::chrono::minutes kSoon{5};
    return wait_ <= kSoon && (status_ == 0 || status_ == 408 || status_ == 429 || status_ >= 500);
  }

 private:
  int status_;
  std::chrono::seconds wait_;
};

/// Talks to the API of a server (`sluice serve --data`), over TLS where something in front of it speaks that: the system's
/// authorities, or those of SSL_CERT_FILE, must vouch for its certificate. Everything throws ServerError, and InputError for
/// answers that are not what a server of this kind says.
class HarnessClient {
 public:
  using Query = std::map<std::string, std::string>;
  /// Told of a stream of events. Each returns false to end it; the first two may throw.
  struct Listener {
    std::function<bool()> begun;  // what happens from now on will be told
    std::function<bool(const nlohmann::json& event)> event;
    std::function<bool()> wanted;  // asked several times a second, by another thread while the stream is open
  };

  /// Throws InputError for an address that is none.
  explicit HarnessClient(ServerAccess access);

  const std::string& address() const { return access_.address; }
  /// `draft` as POST /v1/submissions takes it; the submission, with "is_new".
  nlohmann::json submit(const nlohmann::json& draft);
  nlohmann::json cancel(int64_t id);
  /// Has it judged once more, on new questions; the submission, with "confirmation".
  nlohmann::json confirm(int64_t id);
  /// A submission with its script and its last evaluation.
  nlohmann::json submission(int64_t id);
  /// The answer of GET `path`. Empty values of the query are left out.
  nlohmann::json get(const std::string& path, const Query& query = {});
  /// The answer of POST `path`, which may take an hour, and of DELETE `path`.
  nlohmann::json post(const std::string& path, const nlohmann::json& body);
  nlohmann::json remove(const std::string& path);
  /// Listens to what happens, until the listener or the server ends it, or the server gives no sign of life.
  void follow_events(const Listener& listener);

 private:
  ServerAccess access_;
};

}  // namespace sluice
