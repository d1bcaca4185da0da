#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace sluice {

/// Talks to the API of a server (`sluice serve --data`). What the server refuses becomes InputError with its words and its hint.
class HarnessClient {
 public:
  /// `address` is "http://127.0.0.1:8080"; `token` may be empty for reading. Throws InputError for an address that is none.
  HarnessClient(const std::string& address, std::string token);

  /// `draft` as POST /v1/submissions takes it; the submission, with "is_new".
  nlohmann::json submit(const nlohmann::json& draft);
  /// A submission with its last evaluation; waits for its end for so many seconds, however many requests that takes.
  nlohmann::json submission(int64_t id, int wait_seconds = 0);
  /// The answer of GET `path`.
  nlohmann::json get(const std::string& path);

 private:
  nlohmann::json answer(const std::string& method, const std::string& path, const std::string& body);

  std::string address_;
  std::string token_;
};

}  // namespace sluice
