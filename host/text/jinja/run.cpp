#include "host/text/jinja/run.h"

#include <algorithm>
#include <limits>

namespace sluice::jinja {
namespace {

int depth_of(const Value& value) {
  if (const List* list = as_list(value)) return list->depth;
  if (const Dict* dict = as_dict(value)) return dict->depth;
  return 0;
}

}  // namespace

Value Run::keep(std::string text) {
  charge(sizeof(std::string) + 16);
  return std::string_view(texts_.emplace_back(std::move(text)));
}

Value Run::keep(std::vector<Value> items, List::Kind kind) {
  charge(sizeof(List) + 16 + items.size() * sizeof(Value));
  step(1 + items.size() / 4);
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  if (depth >= kDeepestValue) fail("lists are nested too deep");
  return &lists_.emplace_back(List{kind, std::move(items), depth + 1, false});
}

Value Run::keep(std::vector<std::pair<Value, Value>> items) {
  charge(sizeof(Dict) + 16 + items.size() * sizeof(items.front()));
  step(1 + items.size() / 4);
  int depth = 0;
  for (const auto& [key, value] : items) depth = std::max({depth, depth_of(key), depth_of(value)});
  if (depth >= kDeepestValue) fail("dicts are nested too deep");
  return &dicts_.emplace_back(Dict{std::move(items), depth + 1});
}

Value Run::from_json(const nlohmann::ordered_json& json) {
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return json.get<bool>();
    case Type::number_integer:
      return json.get<int64_t>();
    case Type::number_unsigned:
      if (json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) fail("a variable holds too large an integer");
      return json.get<int64_t>();
    case Type::number_float:
      return json.get<double>();
    case Type::string:
      return std::string_view(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      for (const nlohmann::ordered_json& item : json) items.push_back(from_json(item));
      return keep(std::move(items));
    }
    case Type::object: {
      std::vector<std::pair<Value, Value>> items;
      for (const auto& [key, item] : json.get_ref<const nlohmann::ordered_json::object_t&>()) {
        items.emplace_back(std::string_view(key), from_json(item));
      }
      return keep(std::move(items));
    }
    default:
      return None{};
  }
}

Scope& Run::make_scope(Scope* parent) {
  charge(sizeof(Scope) + 64);
  return scopes_.emplace_back(Scope{parent, {}});
}

}  // namespace sluice::jinja
