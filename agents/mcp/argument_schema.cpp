#include "agents/mcp/argument_schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace sluice::mcp {
namespace {

using nlohmann::json;

/// JSON Schema 2020-12, section 6.1.1 of its validation: a number without a fraction, however it is written.
bool is_integer(const json& value) {
  constexpr double kEnd = 0x1p63;
  if (!value.is_number_float()) return value.is_number_integer();
  const double number = value.get<double>();
  return number == std::trunc(number) && number >= -kEnd && number < kEnd;
}

bool is_type(const std::string& type, const json& value) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "integer") return is_integer(value);
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  throw InternalError("a schema of MCP has the type " + type);
}

bool is_required(const json& schema, const std::string& member) {
  const json required = schema.value("required", json::array());
  return std::find(required.begin(), required.end(), member) != required.end();
}

class Checker {
 public:
  void check(const json& schema, const json& value, const std::string& path);
  std::vector<std::string> problems() && { return std::move(problems_); }

 private:
  void check_object(const json& schema, const json& value, const std::string& path);
  void check_text(const json& schema, const json& value, const std::string& path);
  void check_number(const json& schema, const json& value, const std::string& path);
  void check_array(const json& schema, const json& value, const std::string& path);
  bool has_type(const json& schema, const json& value, const std::string& path);
  void complain(const std::string& problem) {
    constexpr size_t kMost = 5;
    if (problems_.size() < kMost) problems_.push_back(problem);
  }

  std::vector<std::string> problems_;
};

void check_keywords(const json& schema) {
  static const std::set<std::string> known = {"type",      "enum",       "minimum",  "maximum",    "minLength",
                                              "maxLength", "items",      "maxItems", "required",   "additionalProperties",
                                              "default",   "properties", "title",    "description"};
  for (const auto& [keyword, value] : schema.items()) {
    if (!known.contains(keyword)) throw InternalError("a schema of MCP has the keyword " + keyword);
  }
}

bool Checker::has_type(const json& schema, const json& value, const std::string& path) {
  const auto type = schema.find("type");
  if (type == schema.end()) return true;
  const std::vector<std::string> types =
      type->is_array() ? type->get<std::vector<std::string>>() : std::vector<std::string>{*type};
  if (std::any_of(types.begin(), types.end(), [&](const std::string& name) { return is_type(name, value); })) return true;
  complain(fmt::format("{} is {}; {} {} is wanted", path, excerpt(value),
                       std::string_view("aeiou").find(types.front().front()) == std::string_view::npos ? "a" : "an",
                       fmt::join(types, " or ")));
  return false;
}

void Checker::check(const json& schema, const json& value, const std::string& path) {
  check_keywords(schema);
  if (!has_type(schema, value, path)) return;
  const auto choices = schema.find("enum");
  if (choices != schema.end() && std::find(choices->begin(), choices->end(), value) == choices->end()) {
    std::vector<std::string> names;
    for (const json& choice : *choices) names.push_back(excerpt(choice));
    complain(fmt::format("{} is {}; one of {} is wanted", path, excerpt(value), fmt::join(names, ", ")));
  }
  if (value.is_object()) check_object(schema, value, path);
  if (value.is_array()) check_array(schema, value, path);
  if (value.is_string()) check_text(schema, value, path);
  if (value.is_number()) check_number(schema, value, path);
}

void Checker::check_object(const json& schema, const json& value, const std::string& path) {
  const json properties = schema.value("properties", json::object());
  const auto inside = [&](const std::string& member) { return path == "the object" ? member : path + "." + member; };
  for (const json& member : schema.value("required", json::array())) {
    if (!value.contains(member.get<std::string>())) complain(fmt::format("{} is missing", inside(member)));
  }
  const auto additional = schema.find("additionalProperties");
  for (const auto& [member, content] : value.items()) {
    const auto property = properties.find(member);
    if (property != properties.end()) {
      if (!content.is_null() || is_required(schema, member)) check(*property, content, inside(member));
    } else if (additional != schema.end() && additional->is_object()) {
      check(*additional, content, inside(member));
    } else if (additional != schema.end() && *additional == false) {
      complain(fmt::format("{} is not known here", excerpt(member)));
    }
  }
}

void Checker::check_array(const json& schema, const json& value, const std::string& path) {
  const auto most = schema.find("maxItems");
  if (most != schema.end() && value.size() > most->get<size_t>()) {
    complain(fmt::format("{} has {} items; at most {} are wanted", path, value.size(), most->get<size_t>()));
  }
  const auto items = schema.find("items");
  if (items == schema.end()) return;
  for (size_t i = 0; i < value.size(); ++i) check(*items, value[i], fmt::format("{}[{}]", path, i));
}

void Checker::check_text(const json& schema, const json& value, const std::string& path) {
  const size_t length = value.get_ref<const std::string&>().size();
  const auto least = schema.find("minLength");
  if (least != schema.end() && length < least->get<size_t>()) complain(fmt::format("{} is empty", path));
  const auto most = schema.find("maxLength");
  if (most != schema.end() && length > most->get<size_t>()) {
    complain(fmt::format("{} has {} bytes; at most {} are wanted", path, length, most->get<size_t>()));
  }
}

// As doubles: the library compares an unsigned integer with a signed one as if both were signed.
void Checker::check_number(const json& schema, const json& value, const std::string& path) {
  const auto least = schema.find("minimum");
  if (least != schema.end() && value.get<double>() < least->get<double>()) {
    complain(fmt::format("{} is {}; at least {} is wanted", path, excerpt(value), excerpt(*least)));
  }
  const auto most = schema.find("maximum");
  if (most != schema.end() && value.get<double>() > most->get<double>()) {
    complain(fmt::format("{} is {}; at most {} is wanted", path, excerpt(value), excerpt(*most)));
  }
}

}  // namespace

std::vector<std::string> schema_problems(const json& schema, const json& value) {
  Checker checker;
  checker.check(schema, value, "the object");
  return std::move(checker).problems();
}

json plain_integers(const json& schema, json value) {
  const auto type = schema.find("type");
  if (type != schema.end() && *type == "integer" && value.is_number_float() && is_integer(value)) {
    return static_cast<int64_t>(value.get<double>());
  }
  const json properties = schema.value("properties", json::object());
  for (const auto& [member, property] : properties.items()) {
    if (value.is_object() && value.contains(member)) value[member] = plain_integers(property, value[member]);
  }
  if (!value.is_array() || !schema.contains("items")) return value;
  for (json& item : value) item = plain_integers(schema["items"], item);
  return value;
}

std::string signature_of(const json& schema) {
  std::vector<std::string> members;
  const json properties = schema.value("properties", json::object());
  for (const auto& [member, property] : properties.items()) {
    members.push_back(fmt::format("{} ({}{})", member, property.at("type").get<std::string>(),
                                  is_required(schema, member) ? "" : ", optional"));
  }
  return members.empty() ? "it takes none" : fmt::format("{}", fmt::join(members, ", "));
}

}  // namespace sluice::mcp
