#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sluice::testing {

/// Holds answers of a server against its own OpenAPI document.
class AnswerChecker {
 public:
  explicit AnswerChecker(nlohmann::json document) : document_(std::move(document)) {}

  /// What is wrong with an answer to `method` at `path` (which may have a query): an address, a status or a media type that is
  /// not described, or a body that its schema refuses. Empty: nothing.
  std::string check(const std::string& method, const std::string& path, int status, const std::string& content_type,
                    const std::string& body) const;

 private:
  const nlohmann::json* operation_at(const std::string& method, const std::string& path) const;
  const nlohmann::json* answer_of(const nlohmann::json& operation, int status) const;

  nlohmann::json document_;
};

}  // namespace sluice::testing
