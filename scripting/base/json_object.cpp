#include "scripting/base/json_object.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "scripting/base/error.h"
#include "scripting/base/suggest.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

}  // namespace

std::string excerpt(const Json& value) {
  constexpr size_t kMost = 100;
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  // What comes out is printable ASCII, so that a cut splits no character.
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + (value.is_string() ? "...\"" : "...");
  return text;
}

std::string reason_of(const Json::exception& error) {
  constexpr size_t kMost = 200;
  constexpr std::string_view kParseError = "parse error at ";
  std::string_view text = error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
  if (text.starts_with('[')) text.remove_prefix(std::min(text.find("] "), text.size() - 2) + 2);
  if (text.starts_with(kParseError)) text.remove_prefix(kParseError.size());
  return std::string(text.substr(0, kMost));
}

Json parse_json(std::string_view text, const std::string& name) {
  // What reads documents may go down them by recursion, and so do copies of them: no stack is deep enough for a hostile file.
  constexpr int kDeepest = 64;
  const auto check_depth = [&](int depth, Json::parse_event_t, const Json&) {
    if (depth > kDeepest) throw InputError(fmt::format("{}: nested more than {} levels deep", name, kDeepest));
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check_depth);
  } catch (const Json::exception& error) {
    throw InputError(fmt::format("{}: not valid JSON ({})", name, reason_of(error)));
  }
}

JsonObject::JsonObject(const Json& value, std::string where) : value_(&value), where_(std::move(where)) {
  if (!value.is_object()) throw InputError(fmt::format("{}: an object is wanted, but it is {}", where_, excerpt(value)));
}

const Json* JsonObject::find(const char* key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonObject::is_null(const char* key) const {
  const auto found = value_->find(key);
  return found != value_->end() && found->is_null();
}

const Json& JsonObject::at(const char* key) const {
  if (const Json* found = find(key)) return *found;
  throw InputError(fmt::format("{}: {} is missing", where_, excerpt(key)));
}

void JsonObject::refuse_others(std::initializer_list<std::string_view> known) const {
  for (const auto& [key, value] : value_->items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string meant = did_you_mean(key, {known.begin(), known.end()});
    throw InputError(fmt::format("{}: {} is not known here{}{}", where_, excerpt(key), meant.empty() ? "" : "; ", meant), meant);
  }
}

void JsonObject::refuse(const char* key, const std::string& wanted, const std::string& hint) const {
  throw InputError(fmt::format("{}: {} is {}; {}", where_, excerpt(key), excerpt(at(key)), wanted), hint);
}

std::optional<int64_t> JsonObject::find_integer(const char* key, int64_t low, int64_t high) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_integer() && !(value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX});
  if (!fits || value->get<int64_t>() < low || value->get<int64_t>() > high) {
    refuse(key, fmt::format("an integer from {} to {} is wanted", low, high));
  }
  return value->get<int64_t>();
}

int64_t JsonObject::integer(const char* key, int64_t low, int64_t high) const {
  at(key);
  return *find_integer(key, low, high);
}

std::optional<double> JsonObject::find_number(const char* key, double low, double high) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !(value->get<double>() >= low && value->get<double>() <= high)) {
    refuse(key, fmt::format("a number from {} to {} is wanted", low, high));
  }
  return value->get<double>();
}

double JsonObject::number(const char* key, double low, double high) const {
  at(key);
  return *find_number(key, low, high);
}

std::optional<bool> JsonObject::find_boolean(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(key, "true or false is wanted");
  return value->get<bool>();
}

const std::string* JsonObject::find_text(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_string()) refuse(key, "a string is wanted");
  return &value->get_ref<const std::string&>();
}

const std::string& JsonObject::text(const char* key) const {
  at(key);
  return *find_text(key);
}

std::optional<JsonObject> JsonObject::find_object(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return JsonObject(*value, fmt::format("{}: {}", where_, excerpt(key)));
}

JsonObject JsonObject::object(const char* key) const {
  at(key);
  return *find_object(key);
}

const Json& JsonObject::array(const char* key) const {
  const Json& value = at(key);
  if (!value.is_array()) refuse(key, "an array is wanted");
  return value;
}

}  // namespace sluice
