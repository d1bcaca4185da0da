#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "agents/http/http_message.h"

namespace sluice {

/// The reason phrase of an HTTP status that the server gives ("Not Found").
std::string status_title(int status);

/// Why a request is refused, as RFC 9457 tells it. Thrown by handlers and by the server itself; what a handler throws besides
/// becomes 400 (InputError) or 500 (everything else, without its message).
class HttpProblem : public std::runtime_error {
 public:
  /// `detail` is for the caller to read: what was wrong and what to do.
  HttpProblem(int status, const std::string& detail);

  int status() const { return status_; }
  std::string title() const { return status_title(status_); }
  /// Members beside title, status and detail.
  HttpProblem& with(const std::string& member, nlohmann::json value);
  HttpProblem& with_header(const std::string& name, const std::string& value);

  const nlohmann::json& members() const { return members_; }
  const std::map<std::string, std::string>& headers() const { return headers_; }
  /// The whole document, application/problem+json.
  nlohmann::json document() const;

 private:
  int status_;
  nlohmann::json members_ = nlohmann::json::object();
  std::map<std::string, std::string> headers_;
};

/// The document as an answer, but for its status and its header fields.
HttpResponse problem_response(const HttpProblem& problem);

/// `value` as text; bytes that are no UTF-8 are replaced.
std::string json_text(const nlohmann::json& value);

}  // namespace sluice
