#include "host/text/jinja/value_tests.h"

#include <algorithm>
#include <iterator>

#include "host/text/jinja/arguments.h"
#include "host/text/jinja/characters.h"
#include "host/text/jinja/filters.h"
#include "host/text/jinja/operations.h"

namespace sluice::jinja {
namespace {

/// A test without arguments.
template <bool (*is)(const Value&)>
bool plain(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "the test", arguments, {});
  return is(input);
}

bool is_defined(const Value& value) { return !is_undefined(value); }
bool is_text(const Value& value) { return as_text(value) != nullptr; }
bool is_integer(const Value& value) { return std::holds_alternative<int64_t>(value); }
bool is_float(const Value& value) { return std::holds_alternative<double>(value); }
bool is_boolean(const Value& value) { return std::holds_alternative<bool>(value); }
bool is_number(const Value& value) { return is_integer(value) || is_float(value) || is_boolean(value); }
bool is_true(const Value& value) { return is_boolean(value) && std::get<bool>(value); }
bool is_false(const Value& value) { return is_boolean(value) && !std::get<bool>(value); }
bool is_mapping(const Value& value) { return as_dict(value) != nullptr; }
bool is_iterable(const Value& value) {
  return is_text(value) || is_mapping(value) || as_list(value) != nullptr || is_undefined(value);
}
bool is_sequence(const Value& value) {
  const List* list = as_list(value);
  return is_iterable(value) && (list == nullptr || list->kind <= List::Kind::kTuple);
}
bool is_callable(const Value& value) {
  return is_undefined(value) || (as_object(value) != nullptr && as_object(value)->is_callable());
}

bool is_divisible(Run& run, const Value& input, int64_t by) { return equal(run, arithmetic(run, "%", input, by), int64_t{0}); }

bool is_even(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "even", arguments, {});
  return is_divisible(run, input, 2);
}
bool is_odd(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "odd", arguments, {});
  return equal(run, arithmetic(run, "%", input, int64_t{2}), int64_t{1});
}
bool is_divisible_by(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "divisibleby", arguments, {"num"}, 1);
  return equal(run, arithmetic(run, "%", input, given.at(0)), int64_t{0});
}

bool is_same(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "sameas", arguments, {"other"}, 1);
  if (const List* list = as_list(input)) return list == as_list(given.at(0));
  if (const Dict* dict = as_dict(input)) return dict == as_dict(given.at(0));
  return input.index() == given.at(0).index() && equal(run, input, given.at(0));
}

template <bool upper>
bool is_in_case(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, upper ? "upper" : "lower", arguments, {});
  const Value method = attribute(run, text_of(run, input), upper ? "isupper" : "islower");
  return truth(as_object(method)->call(run, {}));
}

/// A comparison as a test; `names` has its operator.
template <char first, char second>
bool compared(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "a test that compares", arguments, {"other"}, 1);
  constexpr char kOperator[] = {first, second};
  return holds(run, std::string_view(kOperator, second == 0 ? 1 : 2), input, given.at(0));
}

bool is_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "filter", arguments, {});
  return is_text(input) && find_filter(*as_text(input)) != nullptr;
}

struct NamedTest {
  std::string_view name;
  Test test;
};

constexpr NamedTest kTests[] = {{"defined", plain<is_defined>},
                                {"undefined", plain<is_undefined>},
                                {"none", plain<is_none>},
                                {"string", plain<is_text>},
                                {"number", plain<is_number>},
                                {"integer", plain<is_integer>},
                                {"float", plain<is_float>},
                                {"boolean", plain<is_boolean>},
                                {"true", plain<is_true>},
                                {"false", plain<is_false>},
                                {"mapping", plain<is_mapping>},
                                {"sequence", plain<is_sequence>},
                                {"iterable", plain<is_iterable>},
                                {"callable", plain<is_callable>},
                                {"even", is_even},
                                {"odd", is_odd},
                                {"divisibleby", is_divisible_by},
                                {"sameas", is_same},
                                {"upper", is_in_case<true>},
                                {"lower", is_in_case<false>},
                                {"filter", is_filter},
                                {"in", compared<'i', 'n'>},
                                {"eq", compared<'=', '='>},
                                {"equalto", compared<'=', '='>},
                                {"==", compared<'=', '='>},
                                {"ne", compared<'!', '='>},
                                {"!=", compared<'!', '='>},
                                {"gt", compared<'>', 0>},
                                {"greaterthan", compared<'>', 0>},
                                {">", compared<'>', 0>},
                                {"ge", compared<'>', '='>},
                                {">=", compared<'>', '='>},
                                {"lt", compared<'<', 0>},
                                {"lessthan", compared<'<', 0>},
                                {"<", compared<'<', 0>},
                                {"le", compared<'<', '='>},
                                {"<=", compared<'<', '='>}};

}  // namespace

Test find_test(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests), [&](const auto& test) { return test.name == name; });
  return found == std::end(kTests) ? nullptr : found->test;
}

}  // namespace sluice::jinja
