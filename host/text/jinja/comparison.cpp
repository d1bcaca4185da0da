#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "host/text/jinja/characters.h"
#include "host/text/jinja/operations.h"

namespace sluice::jinja {
namespace {

std::optional<double> as_number(const Value& value) {
  int64_t place = 0;
  if (const double* number = std::get_if<double>(&value)) return *number;
  if (const int64_t* number = as_integer(value, place)) return static_cast<double>(*number);
  return std::nullopt;
}

bool same_items(Run& run, const List& left, const List& right) {
  if (left.kind != right.kind) return false;
  if (left.kind != List::Kind::kList && left.kind != List::Kind::kTuple) return &left == &right;
  return std::equal(left.items.begin(), left.items.end(), right.items.begin(), right.items.end(),
                    [&](const Value& a, const Value& b) { return equal(run, a, b); });
}

bool same_items(Run& run, const Dict& left, const Dict& right) {
  if (left.items.size() != right.items.size()) return false;
  return std::all_of(left.items.begin(), left.items.end(), [&](const auto& pair) {
    const Value* other = find(run, right, pair.first);
    return other != nullptr && equal(run, pair.second, *other);
  });
}

}  // namespace

bool equal(Run& run, const Value& left, const Value& right) {
  run.step();
  if (const std::string_view* text = as_text(left)) {
    const std::string_view* other = as_text(right);
    if (other == nullptr || other->size() != text->size()) return false;
    run.read(text->size());
    return *text == *other;
  }
  int64_t left_place = 0;
  int64_t right_place = 0;
  const int64_t* left_integer = as_integer(left, left_place);
  const int64_t* right_integer = as_integer(right, right_place);
  if (left_integer != nullptr && right_integer != nullptr) return *left_integer == *right_integer;
  if (const auto number = as_number(left)) return as_number(right) == number;
  const List* left_list = as_list(left);
  const List* right_list = as_list(right);
  if (left_list != nullptr && right_list != nullptr) return same_items(run, *left_list, *right_list);
  const Dict* left_dict = as_dict(left);
  const Dict* right_dict = as_dict(right);
  if (left_dict != nullptr && right_dict != nullptr) return same_items(run, *left_dict, *right_dict);
  if (left.index() != right.index()) return false;
  if (const Object* object = as_object(left)) return object == as_object(right);
  return is_none(left) || is_undefined(left);
}

std::partial_ordering compare(Run& run, const Value& left, const Value& right) {
  run.step();
  const std::string_view* left_text = as_text(left);
  const std::string_view* right_text = as_text(right);
  if (left_text != nullptr && right_text != nullptr) {
    run.read(std::min(left_text->size(), right_text->size()));
    return *left_text <=> *right_text;  // bytes of UTF-8 are in the order of code points
  }
  int64_t left_place = 0;
  int64_t right_place = 0;
  const int64_t* left_integer = as_integer(left, left_place);
  const int64_t* right_integer = as_integer(right, right_place);
  if (left_integer != nullptr && right_integer != nullptr) return *left_integer <=> *right_integer;
  const auto left_number = as_number(left);
  const auto right_number = as_number(right);
  if (left_number && right_number) return *left_number <=> *right_number;
  const List* left_list = as_list(left);
  const List* right_list = as_list(right);
  if (left_list != nullptr && right_list != nullptr && left_list->kind == right_list->kind &&
      left_list->kind <= List::Kind::kTuple) {
    const size_t common = std::min(left_list->items.size(), right_list->items.size());
    for (size_t i = 0; i < common; ++i) {
      if (!equal(run, left_list->items[i], right_list->items[i])) return compare(run, left_list->items[i], right_list->items[i]);
    }
    return left_list->items.size() <=> right_list->items.size();
  }
  if (is_undefined(left) || is_undefined(right)) {
    run.fail(fmt::format("'{}' is undefined", std::get<Undefined>(is_undefined(left) ? left : right).name));
  }
  run.fail(fmt::format("a {} and a {} have no order", type_of(left), type_of(right)));
}

bool contains(Run& run, const Value& right, const Value& left) {
  if (const std::string_view* text = as_text(right)) {
    const std::string_view* wanted = as_text(left);
    if (wanted == nullptr) run.fail(fmt::format("a {} cannot be in a text", type_of(left)));
    run.walk(text->size() + wanted->size());
    return find(*text, *wanted) != std::string::npos;
  }
  if (const Dict* dict = as_dict(right)) return find(run, *dict, left) != nullptr;
  const std::span<const Value> items = iterate(run, right);
  return std::any_of(items.begin(), items.end(), [&](const Value& item) { return equal(run, item, left); });
}

const Value* find(Run& run, const Dict& dict, const Value& key) {
  if (as_dict(key) != nullptr || (as_list(key) != nullptr && as_list(key)->kind == List::Kind::kList)) {
    run.fail(fmt::format("a {} cannot be a key", type_of(key)));
  }
  run.step(1 + dict.items.size() / 8);
  const std::string_view* text = as_text(key);
  for (const auto& [name, value] : dict.items) {
    const std::string_view* other = as_text(name);
    if (text != nullptr && other != nullptr ? *text == *other : text == other && equal(run, name, key)) return &value;
  }
  return nullptr;
}

bool holds(Run& run, std::string_view operation, const Value& left, const Value& right) {
  if (operation == "==") return equal(run, left, right);
  if (operation == "!=") return !equal(run, left, right);
  if (operation == "in") return contains(run, right, left);
  if (operation == "not in") return !contains(run, right, left);
  const std::partial_ordering order = compare(run, left, right);
  if (operation == "<") return std::is_lt(order);
  if (operation == "<=") return std::is_lteq(order);
  return operation == ">" ? std::is_gt(order) : std::is_gteq(order);
}

}  // namespace sluice::jinja
