#include "agents/http/http_problem.h"

#include <utility>

#include "scripting/base/printable_text.h"

namespace sluice {

std::string status_title(int status) {
  static const std::map<int, std::string> titles = {{200, "OK"},
                                                    {201, "Created"},
                                                    {202, "Accepted"},
                                                    {204, "No Content"},
                                                    {400, "Bad Request"},
                                                    {401, "Unauthorized"},
                                                    {403, "Forbidden"},
                                                    {404, "Not Found"},
                                                    {405, "Method Not Allowed"},
                                                    {406, "Not Acceptable"},
                                                    {408, "Request Timeout"},
                                                    {409, "Conflict"},
                                                    {411, "Length Required"},
                                                    {413, "Content Too Large"},
                                                    {414, "URI Too Long"},
                                                    {415, "Unsupported Media Type"},
                                                    {421, "Misdirected Request"},
                                                    {422, "Unprocessable Content"},
                                                    {429, "Too Many Requests"},
                                                    {431, "Request Header Fields Too Large"},
                                                    {500, "Internal Server Error"},
                                                    {501, "Not Implemented"},
                                                    {503, "Service Unavailable"},
                                                    {507, "Insufficient Storage"},
                                                    {505, "HTTP Version Not Supported"}};
  const auto found = titles.find(status);
  return found == titles.end() ? "Status " + std::to_string(status) : found->second;
}

HttpProblem::HttpProblem(int status, const std::string& detail) : std::runtime_error(without_nul(detail)), status_(status) {}

HttpProblem& HttpProblem::with(const std::string& member, nlohmann::json value) {
  members_[member] = std::move(value);
  return *this;
}

HttpProblem& HttpProblem::with_header(const std::string& name, const std::string& value) {
  headers_[name] = value;
  return *this;
}

nlohmann::json HttpProblem::document() const {
  nlohmann::json document = members_;
  if (!document.contains("type")) document["type"] = "about:blank";
  document["title"] = title();
  document["status"] = status_;
  document["detail"] = what();
  return document;
}

HttpResponse problem_response(const HttpProblem& problem) {
  HttpResponse response;
  response.content_type = "application/problem+json";
  response.body = json_text(problem.document());
  return response;
}

std::string json_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace sluice
