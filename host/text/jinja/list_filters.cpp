#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "host/text/jinja/arguments.h"
#include "host/text/jinja/characters.h"
#include "host/text/jinja/filters.h"
#include "host/text/jinja/operations.h"

namespace sluice::jinja {
namespace {

/// What values are sorted and compared by: a part of theirs, and texts without regard to case unless it counts.
class Key {
 public:
  Key(Run& run, const Value* attribute, bool case_counts) : run_(run), case_counts_(case_counts) {
    if (attribute != nullptr && !is_none(*attribute)) path_ = *attribute;
  }
  Value operator()(const Value& item) const {
    const Value value = path_ ? part_of(run_, item, *path_) : item;
    const std::string_view* text = as_text(value);
    if (case_counts_ || text == nullptr) return value;
    run_.walk(text->size());
    run_.charge(text->size());
    return run_.keep(cased(*text, Case::kLower));
  }

 private:
  Run& run_;
  bool case_counts_;
  std::optional<Value> path_;
};

std::vector<Value> copied(Run& run, const Value& input) {
  const std::span<const Value> items = iterate(run, input);
  run.charge(items.size() * sizeof(Value));
  return {items.begin(), items.end()};
}

/// Sorted by `key`; of equals the first stays first, also from high to low.
std::vector<Value> sorted(Run& run, const std::vector<Value>& items, const Key& key, bool reversed) {
  std::vector<std::pair<Value, Value>> keyed;
  run.charge(items.size() * sizeof(keyed.front()));
  for (const Value& item : items) keyed.emplace_back(key(item), item);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    if (equal(run, a.first, b.first)) return false;  // which need not have an order
    return std::is_lt(reversed ? compare(run, b.first, a.first) : compare(run, a.first, b.first));
  });
  std::vector<Value> result;
  for (const auto& [unused, item] : keyed) result.push_back(item);
  return result;
}

Value sort(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const Key key(run, given.find(2), given.boolean(1, false));
  return run.keep(sorted(run, copied(run, input), key, given.boolean(0, false)));
}

Value dictsort(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string_view by = given.text(1, "key");
  if (by != "key" && by != "value") run.fail("dictsort: \"by\" is key or value");
  const Dict* dict = as_dict(input);
  if (dict == nullptr) run.fail(fmt::format("dictsort does not take a {}", type_of(input)));
  std::vector<Value> pairs;
  for (const auto& [name, value] : dict->items) pairs.push_back(run.keep({name, value}, List::Kind::kTuple));
  const Value place = int64_t{by == "key" ? 0 : 1};
  return run.keep(sorted(run, pairs, Key(run, &place, given.boolean(0, false)), given.boolean(2, false)));
}

template <bool least>
Value extreme(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, least ? "min" : "max", arguments, {"case_sensitive", "attribute"});
  const Key key(run, given.find(1), given.boolean(0, false));
  const std::span<const Value> items = iterate(run, input);
  if (items.empty()) return Undefined{"the extreme of no values"};
  const Value* best = &items.front();
  Value best_key = key(*best);
  for (const Value& item : items.subspan(1)) {
    const Value other = key(item);
    const std::partial_ordering order = compare(run, other, best_key);
    if (!(least ? std::is_lt(order) : std::is_gt(order))) continue;
    best = &item;
    best_key = other;
  }
  return *best;
}

Value unique(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "unique", arguments, {"case_sensitive", "attribute"});
  const Key key(run, given.find(1), given.boolean(0, false));
  Dict seen;
  std::vector<Value> result;
  for (const Value& item : iterate(run, input)) {
    const Value name = key(item);
    if (find(run, seen, name) != nullptr) continue;
    run.charge(sizeof(seen.items.front()));
    seen.items.emplace_back(name, None{});
    result.push_back(item);
  }
  return run.keep(std::move(result), List::Kind::kGenerator);
}

Value sum(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "sum", arguments, {"attribute", "start"});
  Value total = given.find(1) == nullptr ? Value(int64_t{0}) : given.at(1);
  for (const Value& item : iterate(run, input)) {
    total = arithmetic(run, "+", total, given.has(0) ? part_of(run, item, given.at(0)) : item);
  }
  return total;
}

Value join(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "join", arguments, {"d", "attribute"});
  const std::string_view separator = given.find(0) == nullptr ? std::string_view() : text_of(run, given.at(0));
  Writer writer(run);
  bool first = true;
  for (const Value& item : iterate(run, input)) {
    if (!first) writer.add(separator);
    first = false;
    write_text(writer, given.has(1) ? part_of(run, item, given.at(1)) : item);
  }
  return writer.done();
}

Value list(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "list", arguments, {});
  return run.keep(copied(run, input));
}

Value first(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "first", arguments, {});
  const std::span<const Value> items = iterate(run, input);
  return items.empty() ? Value(Undefined{"the first of no values"}) : items.front();
}

Value last(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "last", arguments, {});
  const List* generator = as_list(input);
  if (generator != nullptr && generator->kind == List::Kind::kGenerator)
    run.fail("a generator has no last value; make a list of it");
  const std::span<const Value> items = iterate(run, input);
  return items.empty() ? Value(Undefined{"the last of no values"}) : items.back();
}

Value reverse(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "reverse", arguments, {});
  std::vector<Value> items = copied(run, input);
  std::reverse(items.begin(), items.end());
  if (as_text(input) == nullptr) return run.keep(std::move(items), List::Kind::kGenerator);
  Writer writer(run);
  for (const Value& item : items) writer.add(*as_text(item));
  return writer.done();
}

Value count(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "length", arguments, {});
  return length(run, input);
}

Value items_of(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "items", arguments, {});
  std::vector<Value> items;
  if (const Dict* dict = as_dict(input)) {
    for (const auto& [key, value] : dict->items) items.push_back(run.keep({key, value}, List::Kind::kTuple));
  } else if (!is_undefined(input)) {
    run.fail(fmt::format("items does not take a {}", type_of(input)));
  }
  return run.keep(std::move(items), List::Kind::kGenerator);
}

Value batch(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t size = given.integer(0, 1);
  if (size < 1) run.fail("batch: the size of a batch must be above 0");
  std::vector<Value> batches;
  std::vector<Value> current;
  for (const Value& item : iterate(run, input)) {
    if (static_cast<int64_t>(current.size()) == size) batches.push_back(run.keep(std::exchange(current, {})));
    current.push_back(item);
  }
  if (!current.empty()) {
    if (given.has(1)) {
      run.charge(static_cast<size_t>(size) * sizeof(Value));
      current.resize(static_cast<size_t>(size), given.at(1));
    }
    batches.push_back(run.keep(std::move(current)));
  }
  return run.keep(std::move(batches), List::Kind::kGenerator);
}

Value default_value(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "default", arguments, {"default_value", "boolean"});
  const bool replaced = is_undefined(input) || (given.boolean(1, false) && !truth(input));
  if (!replaced) return input;
  return given.find(0) == nullptr ? Value(std::string_view()) : given.at(0);
}

Value attribute_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "attr", arguments, {"name"}, 1);
  if (as_dict(input) != nullptr) return Undefined{text_of(run, given.at(0))};  // items are no attributes
  return attribute(run, input, text_of(run, given.at(0)));
}

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

constexpr NamedFilter kFilters[] = {{"default", default_value}, {"d", default_value}, {"length", count},
                                    {"count", count},           {"join", join},       {"list", list},
                                    {"first", first},           {"last", last},       {"items", items_of},
                                    {"dictsort", dictsort},     {"sort", sort},       {"reverse", reverse},
                                    {"unique", unique},         {"sum", sum},         {"min", extreme<true>},
                                    {"max", extreme<false>},    {"batch", batch},     {"attr", attribute_filter}};

}  // namespace

Filter find_list_filter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters), [&](const auto& one) { return one.name == name; });
  return found == std::end(kFilters) ? nullptr : found->filter;
}

Value part_of(Run& run, const Value& value, const Value& path) {
  const std::string_view* text = as_text(path);
  if (text == nullptr) return item(run, value, path);
  Value part = value;
  std::string_view rest = *text;
  while (true) {
    const std::string_view name = rest.substr(0, rest.find('.'));
    const bool is_place = !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string_view::npos;
    part = item(run, part, is_place ? Value(int64_t{std::stol(std::string(name))}) : Value(name));
    if (name.size() == rest.size()) return part;
    rest.remove_prefix(name.size() + 1);
  }
}

}  // namespace sluice::jinja
