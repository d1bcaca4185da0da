// Filters that go through a list with another filter, or a test: map, select, reject, groupby.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "host/text/jinja/filters.h"
#include "host/text/jinja/operations.h"
#include "host/text/jinja/value_tests.h"

namespace sluice::jinja {
namespace {

std::string_view name_of(const Run& run, const Value& value, const char* what) {
  if (const std::string_view* name = as_text(value)) return *name;
  run.fail(fmt::format("the name of {} is a {}, not a text", what, type_of(value)));
}

/// The arguments behind the first `taken`.
Arguments rest_of(const Arguments& arguments, size_t taken) {
  Arguments rest;
  rest.values.assign(arguments.values.begin() + static_cast<std::ptrdiff_t>(taken), arguments.values.end());
  rest.named = arguments.named;
  return rest;
}

const Value* named(const Arguments& arguments, std::string_view name) {
  const auto found =
      std::find_if(arguments.named.begin(), arguments.named.end(), [&](const auto& one) { return one.first == name; });
  return found == arguments.named.end() ? nullptr : &found->second;
}

/// What there is to go through: nothing in whatever counts as false, as Jinja has it here.
std::span<const Value> items_of(Run& run, const Value& input) {
  return truth(input) ? iterate(run, input) : std::span<const Value>();
}

Value map_parts(Run& run, const Value& input, const Arguments& arguments) {
  const Value path = *named(arguments, "attribute");
  const Value* otherwise = named(arguments, "default");
  std::vector<Value> result;
  for (const Value& item : items_of(run, input)) {
    const Value part = part_of(run, item, path);
    result.push_back(is_undefined(part) && otherwise != nullptr ? *otherwise : part);
  }
  return run.keep(std::move(result), List::Kind::kGenerator);
}

Value map(Run& run, const Value& input, const Arguments& arguments) {
  const Run::Level level(run);
  if (arguments.values.empty()) {
    if (named(arguments, "attribute") == nullptr) run.fail("map wants the name of a filter, or an attribute");
    return map_parts(run, input, arguments);
  }
  const std::string_view name = name_of(run, arguments.values[0], "a filter");
  const Filter filter = find_filter(name);
  if (filter == nullptr) run.fail(fmt::format("there is no filter \"{}\" here", name));
  const Arguments rest = rest_of(arguments, 1);
  std::vector<Value> result;
  for (const Value& item : items_of(run, input)) {
    run.charge(sizeof(Value));
    result.push_back(filter(run, item, rest));
  }
  return run.keep(std::move(result), List::Kind::kGenerator);
}

/// Items for which the test, or their truth if none is named, is `wanted`; of an attribute of theirs where `by_attribute`.
template <bool wanted, bool by_attribute>
Value choose(Run& run, const Value& input, const Arguments& arguments) {
  constexpr size_t kTaken = by_attribute ? 1 : 0;
  if (arguments.values.size() < kTaken) run.fail("the name of an attribute is missing");
  Test test = nullptr;
  Arguments rest;
  if (arguments.values.size() > kTaken) {
    const std::string_view name = name_of(run, arguments.values[kTaken], "a test");
    test = find_test(name);
    if (test == nullptr) run.fail(fmt::format("there is no test \"{}\" here", name));
    rest = rest_of(arguments, kTaken + 1);
  }
  std::vector<Value> result;
  for (const Value& item : items_of(run, input)) {
    run.charge(sizeof(Value));
    const Value value = by_attribute ? part_of(run, item, arguments.values[0]) : item;
    if ((test != nullptr ? test(run, value, rest) : truth(value)) == wanted) result.push_back(item);
  }
  return run.keep(std::move(result), List::Kind::kGenerator);
}

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

constexpr NamedFilter kFilters[] = {{"map", map},
                                    {"select", choose<true, false>},
                                    {"reject", choose<false, false>},
                                    {"selectattr", choose<true, true>},
                                    {"rejectattr", choose<false, true>}};

}  // namespace

Filter find_choosing_filter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters), [&](const auto& one) { return one.name == name; });
  return found == std::end(kFilters) ? nullptr : found->filter;
}

}  // namespace sluice::jinja
