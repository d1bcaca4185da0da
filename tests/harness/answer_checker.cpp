#include "tests/harness/answer_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>
#include <vector>

namespace sluice::testing {
namespace {

using nlohmann::json;

std::vector<std::string> segments_of(const std::string& path) {
  std::istringstream stream(path.substr(0, path.find('?')));
  std::vector<std::string> segments;
  for (std::string segment; std::getline(stream, segment, '/');) segments.push_back(segment);
  return segments;
}

bool matches(const std::string& pattern, const std::string& path) {
  const std::vector<std::string> wanted = segments_of(pattern);
  const std::vector<std::string> given = segments_of(path);
  return wanted.size() == given.size() &&
         std::equal(wanted.begin(), wanted.end(), given.begin(),
                    [](const auto& a, const auto& b) { return a == b || (a.starts_with('{') && a.ends_with('}')); });
}

std::string refusal(const json& schema, const json& body) {
  valijson::Schema parsed;
  valijson::SchemaParser().populateSchema(valijson::adapters::NlohmannJsonAdapter(schema), parsed);
  valijson::ValidationResults results;
  if (valijson::Validator().validate(parsed, valijson::adapters::NlohmannJsonAdapter(body), &results)) return {};
  std::string text;
  for (valijson::ValidationResults::Error error; results.popError(error);) {
    for (const std::string& step : error.context) text += step;
    text += ": " + error.description + "\n";
  }
  return text;
}

}  // namespace

const json* AnswerChecker::operation_at(const std::string& method, const std::string& path) const {
  std::string lower = method;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const auto& [pattern, item] : document_.at("paths").items()) {
    if (matches(pattern, path) && item.contains(lower)) return &item.at(lower);
  }
  return nullptr;
}

const json* AnswerChecker::answer_of(const json& operation, int status) const {
  const json& answers = operation.at("responses");
  const auto found = answers.find(std::to_string(status));
  if (found != answers.end()) return &*found;
  if (status < 400 || !answers.contains("default")) return nullptr;
  return &document_.at("components").at("responses").at("Problem");
}

std::string AnswerChecker::check(const std::string& method, const std::string& path, int status, const std::string& content_type,
                                 const std::string& body) const {
  const json* operation = operation_at(method, path);
  if (operation == nullptr) return "the address is not described";
  const json* answer = answer_of(*operation, status);
  if (answer == nullptr) return fmt::format("the status {} is not described", status);
  const std::string type = content_type.substr(0, content_type.find(';'));
  if (!answer->contains("content") || !answer->at("content").contains(type)) {
    return fmt::format("the media type {} is not described", type);
  }
  const json& schema = answer->at("content").at(type).at("schema");
  const json parsed = type.ends_with("json") ? json::parse(body, nullptr, false) : json(body);
  if (parsed.is_discarded()) return "the body is no JSON";
  return refusal(status >= 400 ? document_.at("components").at("schemas").at("Problem") : schema, parsed);
}

}  // namespace sluice::testing
