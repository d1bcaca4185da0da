#include "tests/http/open_api_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace sluice::test {
namespace {

using Json = nlohmann::json;

class Checker {
 public:
  explicit Checker(Json document) : document_(std::move(document)) {}

  std::vector<std::string> check() {
    const std::string version = document_.value("openapi", "");
    want(version.starts_with("3.1."), "openapi", "3.1.x");
    const Json info = document_.value("info", Json::object());
    want(info.contains("title") && info.contains("version"), "info", "title and version");
    want(document_.contains("paths") && document_["paths"].is_object(), "paths", "an object");
    for (const auto& [path, item] : document_["paths"].items()) check_path(path, item);
    for (const auto& [name, schema] : document_["components"]["schemas"].items()) check_schema(schema, name);
    return std::move(errors_);
  }

 private:
  void want(bool holds, const std::string& where, const std::string& what) {
    if (!holds) errors_.push_back(fmt::format("{}: {} is wanted", where, what));
  }

  void check_path(const std::string& path, const Json& item) {
    want(path.starts_with('/'), path, "a path");
    static const std::set<std::string> methods = {"get", "put", "post", "delete", "options", "head", "patch", "trace"};
    for (const auto& [method, operation] : item.items()) {
      const std::string where = fmt::format("{} {}", method, path);
      want(methods.contains(method), where, "a method");
      const std::string name = operation.value("operationId", "");
      want(!name.empty() && operations_.insert(name).second, where, "a unique operationId");
      want(!operation.value("summary", "").empty(), where, "a summary");
      check_parameters(path, operation.value("parameters", Json::array()), where);
      if (operation.contains("requestBody")) check_content(operation["requestBody"], where);
      check_answers(operation.value("responses", Json::object()), where);
      for (const Json& requirement : operation.value("security", Json::array())) check_security(requirement, where);
    }
  }

  void check_parameters(const std::string& path, const Json& parameters, const std::string& where) {
    std::set<std::string> in_path;
    for (const Json& parameter : parameters) {
      const std::string in = parameter.value("in", "");
      want(in == "path" || in == "query" || in == "header", where, "a parameter in path, query or header");
      want(in != "path" || parameter.value("required", false), where, "required parameters in the path");
      want(parameter.contains("schema"), where, "a schema of each parameter");
      check_schema(parameter.value("schema", Json::object()), where);
      if (in == "path") in_path.insert(parameter.value("name", ""));
    }
    for (size_t at = path.find('{'); at != std::string::npos; at = path.find('{', at + 1)) {
      const std::string name = path.substr(at + 1, path.find('}', at) - at - 1);
      want(in_path.erase(name) == 1, where, "a parameter " + name);
    }
    want(in_path.empty(), where, "no parameters that the path does not have");
  }

  void check_content(const Json& holder, const std::string& where) {
    const Json content = holder.value("content", Json::object());
    for (const auto& [type, media] : content.items()) {
      want(type.find('/') != std::string::npos, where, "a media type");
      want(media.contains("schema"), where, "a schema");
      check_schema(media.value("schema", Json::object()), where);
    }
  }

  void check_answers(const Json& answers, const std::string& where) {
    want(answers.is_object() && !answers.empty(), where, "responses");
    for (const auto& [status, answer] : answers.items()) {
      const bool number =
          status.size() == 3 && std::all_of(status.begin(), status.end(), [](char c) { return c >= '0' && c <= '9'; });
      want(number || status == "default", where, "statuses");
      if (answer.contains("$ref")) {
        check_reference(answer["$ref"], where);
      } else {
        want(!answer.value("description", "").empty(), where, "a description of " + status);
        check_content(answer, where);
      }
    }
  }

  void check_security(const Json& requirement, const std::string& where) {
    for (const auto& [name, scopes] : requirement.items()) {
      want(document_["components"]["securitySchemes"].contains(name) && scopes.is_array(), where, "a known security scheme");
    }
  }

  void check_reference(const Json& reference, const std::string& where) {
    const std::string text = reference.is_string() ? reference.get<std::string>() : "";
    want(text.starts_with("#/") && document_.contains(Json::json_pointer(text.substr(1))), where,
         "a reference that leads somewhere");
  }

  /// JSON Schema 2020-12, the keywords that we use.
  void check_schema(const Json& schema, const std::string& where) {
    static const std::set<std::string> numbers = {"minimum",   "maximum",   "exclusiveMinimum", "exclusiveMaximum",
                                                  "minLength", "maxLength", "minItems",         "maxItems"};
    static const std::set<std::string> known = {"type", "description", "default", "enum", "format", "pattern", "const", "title"};
    if (!schema.is_object()) return want(schema.is_boolean(), where, "a schema");
    for (const auto& [keyword, value] : schema.items()) {
      if (keyword == "$ref") {
        check_reference(value, where);
      } else if (keyword == "properties") {
        want(value.is_object(), where, "properties as an object");
        for (const auto& [name, property] : value.items()) check_schema(property, fmt::format("{}.{}", where, name));
      } else if (keyword == "items" || keyword == "additionalProperties") {
        check_schema(value, where + "[]");
      } else if (keyword == "oneOf" || keyword == "anyOf" || keyword == "allOf") {
        want(value.is_array() && !value.empty(), where, "a list for " + keyword);
        for (const Json& part : value) check_schema(part, where);
      } else if (keyword == "required") {
        const bool texts =
            value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& item) { return item.is_string(); });
        want(texts, where, "a list of names for required");
      } else if (numbers.contains(keyword)) {
        want(value.is_number(), where, "a number for " + keyword);
      } else {
        want(known.contains(keyword), where, "no keyword " + keyword);
      }
      if (keyword == "type") check_type(value, where);
      if (keyword == "enum") want(value.is_array() && !value.empty(), where, "a list for enum");
    }
  }

  void check_type(const Json& type, const std::string& where) {
    static const std::set<std::string> types = {"string", "number", "integer", "boolean", "array", "object", "null"};
    for (const Json& name : type.is_array() ? type : Json::array({type})) {
      want(name.is_string() && types.contains(name.get<std::string>()), where, "a type");
    }
  }

  Json document_;
  std::set<std::string> operations_;
  std::vector<std::string> errors_;
};

}  // namespace

std::vector<std::string> check_open_api(const nlohmann::json& document) { return Checker(document).check(); }

}  // namespace sluice::test
