#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sluice::jinja {

struct List;
struct Dict;
class Object;

/// What a name or a key that is not there has for a value. It prints as nothing; to use it otherwise is an error that tells
/// its name.
struct Undefined {
  std::string_view name;
};
struct None {};

/// A value as Python has it. Texts are UTF-8. What it refers to belongs to the rendering (`Run`), the template or the variables,
/// and changes no more: a value is copied freely.
using Value = std::variant<Undefined, None, bool, int64_t, double, std::string_view, const List*, const Dict*, Object*>;

struct List {
  enum class Kind : uint8_t {
    kList,
    kTuple,
    kView,       // keys, values or items of a dict: has a length, but no places
    kGenerator,  // what `map` and its like give: no length, true even if empty, and read once
  };
  Kind kind = Kind::kList;
  std::vector<Value> items;
  int depth = 1;               // of lists and dicts within each other
  mutable bool spent = false;  // a generator that was read
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in order of insertion; keys differ
  int depth = 1;
};

inline const List* as_list(const Value& value) {
  const auto* list = std::get_if<const List*>(&value);
  return list == nullptr ? nullptr : *list;
}
inline const Dict* as_dict(const Value& value) {
  const auto* dict = std::get_if<const Dict*>(&value);
  return dict == nullptr ? nullptr : *dict;
}
inline Object* as_object(const Value& value) {
  const auto* object = std::get_if<Object*>(&value);
  return object == nullptr ? nullptr : *object;
}
inline const std::string_view* as_text(const Value& value) { return std::get_if<std::string_view>(&value); }
inline bool is_undefined(const Value& value) { return std::holds_alternative<Undefined>(value); }
inline bool is_none(const Value& value) { return std::holds_alternative<None>(value); }

/// The integer that Python counts with: booleans are 0 and 1.
inline const int64_t* as_integer(const Value& value, int64_t& place) {
  if (const bool* truth = std::get_if<bool>(&value)) {
    place = *truth ? 1 : 0;
    return &place;
  }
  return std::get_if<int64_t>(&value);
}

/// What Python calls its type: "str", "list", ...
std::string_view type_of(const Value& value);
/// Python's bool().
bool truth(const Value& value);

}  // namespace sluice::jinja
