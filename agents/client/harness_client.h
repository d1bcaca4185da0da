#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace sluice {

/// Where a server is, and who asks.
struct ServerAccess {
  std::string address;  // "http://127.0.0.1:8080"
  std::string token;    // of an agent; may be empty for reading

  /// What SLUICE_SERVER and SLUICE_TOKEN say: this machine's usual server and no token unless they are set.
  static ServerAccess from_environment();
};

/// Talks to the API of a server (`sluice serve --data`). What the server refuses becomes InputError with its words and its hint.
class HarnessClient {
 public:
  using Query = std::map<std::string, std::string>;
  /// Told of a stream of events. Each returns false to end it.
  struct Listener {
    std::function<bool()> begun;  // what happens from now on will be told
    std::function<bool(const nlohmann::json& event)> event;
    std::function<bool()> wanted;  // asked whenever anything arrives, signs of life included
  };

  /// Throws InputError for an address that is none.
  explicit HarnessClient(ServerAccess access);

  const std::string& address() const { return access_.address; }
  /// `draft` as POST /v1/submissions takes it; the submission, with "is_new".
  nlohmann::json submit(const nlohmann::json& draft);
  nlohmann::json cancel(int64_t id);
  /// A submission with its script and its last evaluation.
  nlohmann::json submission(int64_t id);
  /// The answer of GET `path`. Empty values of the query are left out.
  nlohmann::json get(const std::string& path, const Query& query = {});
  /// Listens to what happens, until the listener ends it or nothing arrives for `silence`.
  void follow_events(std::chrono::seconds silence, const Listener& listener);

 private:
  ServerAccess access_;
};

}  // namespace sluice
