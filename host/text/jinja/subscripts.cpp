#include <fmt/format.h>

#include <algorithm>

#include "host/text/jinja/characters.h"
#include "host/text/jinja/methods.h"
#include "host/text/jinja/operations.h"

namespace sluice::jinja {
namespace {

void refuse_undefined(Run& run, const Value& value) {
  if (is_undefined(value)) run.fail(fmt::format("'{}' is undefined", std::get<Undefined>(value).name));
}

/// The place that Python's index names, from the end if it is negative; nullopt beyond the ends.
std::optional<size_t> place_of(int64_t index, size_t size) {
  const auto count = static_cast<int64_t>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  return static_cast<size_t>(index);
}

std::string_view name_of(Run& run, const Value& key) {
  if (const std::string_view* text = as_text(key)) return *text;
  return as_list(key) == nullptr && as_dict(key) == nullptr && as_object(key) == nullptr ? text_of(run, key) : type_of(key);
}

bool has_places(const List& list) { return list.kind == List::Kind::kList || list.kind == List::Kind::kTuple; }

/// The places of a slice of `size` items, as Python counts them.
std::vector<size_t> places_of_slice(Run& run, size_t size, const Value& begin, const Value& end, const Value& step) {
  const auto read = [&](const Value& value, int64_t otherwise) {
    int64_t place = 0;
    if (is_none(value)) return otherwise;
    if (const int64_t* number = as_integer(value, place)) return *number;
    run.fail(fmt::format("a {} cannot be the end of a slice", type_of(value)));
  };
  const auto count = static_cast<int64_t>(size);
  const int64_t stride = read(step, 1);
  if (stride == 0) run.fail("the step of a slice is 0");
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? count : count - 1;
  const auto within = [&](int64_t at) { return std::clamp(at < 0 ? at + count : at, low, high); };
  const int64_t from = is_none(begin) ? (stride > 0 ? low : high) : within(read(begin, 0));
  const int64_t to = is_none(end) ? (stride > 0 ? high : low) : within(read(end, 0));
  std::vector<size_t> places;
  const int64_t distance = stride > 0 ? to - from : from - to;
  if (distance <= 0) return places;
  const uint64_t width = stride > 0 ? static_cast<uint64_t>(stride) : uint64_t{0} - static_cast<uint64_t>(stride);
  const uint64_t taken = (static_cast<uint64_t>(distance) - 1) / width + 1;
  run.charge(taken * sizeof(size_t));
  for (uint64_t i = 0; i < taken; ++i) places.push_back(static_cast<size_t>(from + static_cast<int64_t>(i) * stride));
  return places;
}

Value slice_of_text(Run& run, std::string_view text, const Value& begin, const Value& end, const Value& step) {
  run.walk(text.size());
  const std::vector<size_t> places = places_of_slice(run, count_characters(text), begin, end, step);
  if (places.empty()) return std::string_view();
  int64_t place = 0;
  const int64_t* stride = as_integer(step, place);
  if (stride == nullptr || *stride == 1) {
    const size_t from = byte_of_character(text, places.front());
    return text.substr(from, byte_of_character(text.substr(from), places.size()));
  }
  run.charge(text.size() * sizeof(size_t));
  std::vector<size_t> bytes;  // where characters begin
  for (size_t at = 0; at < text.size(); at += character_length(text, at)) bytes.push_back(at);
  Writer writer(run);
  for (const size_t at : places) writer.add(text.substr(bytes[at], character_length(text, bytes[at])));
  return writer.done();
}

}  // namespace

std::span<const Value> iterate(Run& run, const Value& value) {
  if (const List* list = as_list(value)) {
    if (list->kind != List::Kind::kGenerator) return list->items;
    if (std::exchange(list->spent, true)) return {};
    return list->items;
  }
  if (is_undefined(value)) return {};
  std::vector<Value> items;
  if (const Dict* dict = as_dict(value)) {
    run.charge(dict->items.size() * sizeof(Value));
    for (const auto& [key, unused] : dict->items) items.push_back(key);
  } else if (const std::string_view* text = as_text(value)) {
    run.walk(text->size());
    run.charge(count_characters(*text) * sizeof(Value));
    for (size_t at = 0, size = 0; at < text->size(); at += size) {
      size = character_length(*text, at);
      items.emplace_back(text->substr(at, size));
    }
  } else {
    run.fail(fmt::format("a {} cannot be gone through", type_of(value)));
  }
  return as_list(run.keep(std::move(items)))->items;
}

int64_t length(Run& run, const Value& value) {
  if (is_undefined(value)) return 0;
  if (const std::string_view* text = as_text(value)) {
    run.read(text->size());
    return static_cast<int64_t>(count_characters(*text));
  }
  if (const Dict* dict = as_dict(value)) return static_cast<int64_t>(dict->items.size());
  const List* list = as_list(value);
  if (list == nullptr || list->kind == List::Kind::kGenerator) run.fail(fmt::format("a {} has no length", type_of(value)));
  return static_cast<int64_t>(list->items.size());
}

Value attribute(Run& run, const Value& value, std::string_view name) {
  run.step();
  refuse_undefined(run, value);
  if (Object* object = as_object(value)) return object->attribute(run, name);
  if (const auto method = find_method(run, value, name)) return *method;
  if (const Dict* dict = as_dict(value)) {
    if (const Value* found = find(run, *dict, name)) return *found;
  }
  return Undefined{name};
}

Value item(Run& run, const Value& value, const Value& key) {
  run.step();
  refuse_undefined(run, value);
  int64_t place = 0;
  const int64_t* index = as_integer(key, place);
  if (const Dict* dict = as_dict(value)) {
    const bool is_key = as_list(key) == nullptr && as_dict(key) == nullptr;
    const Value* found = is_key ? find(run, *dict, key) : nullptr;
    if (found != nullptr) return *found;
  } else if (const List* list = as_list(value); list != nullptr && index != nullptr && has_places(*list)) {
    if (const auto at = place_of(*index, list->items.size())) return list->items[*at];
  } else if (const std::string_view* text = as_text(value); text != nullptr && index != nullptr) {
    run.read(text->size());
    if (const auto at = place_of(*index, count_characters(*text))) {
      const size_t from = byte_of_character(*text, *at);
      run.walk(from);
      return text->substr(from, character_length(*text, from));
    }
  }
  const std::string_view* name = as_text(key);
  if (name != nullptr && as_object(value) != nullptr) return as_object(value)->attribute(run, *name);
  if (name != nullptr) {
    if (const auto method = find_method(run, value, *name)) return *method;
  }
  return Undefined{name_of(run, key)};
}

Value slice(Run& run, const Value& value, const Value& begin, const Value& end, const Value& step) {
  refuse_undefined(run, value);
  if (const std::string_view* text = as_text(value)) return slice_of_text(run, *text, begin, end, step);
  const List* list = as_list(value);
  if (list == nullptr || !has_places(*list)) run.fail(fmt::format("a {} cannot be sliced", type_of(value)));
  std::vector<Value> items;
  for (const size_t place : places_of_slice(run, list->items.size(), begin, end, step)) items.push_back(list->items[place]);
  return run.keep(std::move(items), list->kind);
}

}  // namespace sluice::jinja
