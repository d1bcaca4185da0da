#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

#include "host/text/jinja/arguments.h"
#include "host/text/jinja/characters.h"
#include "host/text/jinja/filters.h"
#include "host/text/jinja/operations.h"

namespace sluice::jinja {
namespace {

void refuse_undefined(const Run& run, const Value& value) {
  if (is_undefined(value)) run.fail(fmt::format("'{}' is undefined", std::get<Undefined>(value).name));
}

/// A text without what Python's int() and float() overlook: white space around it, + before it, _ between digits.
std::optional<std::string> digits_of(std::string_view text) {
  constexpr size_t kLongest = 400;
  text = strip(text, true, true);
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  if (text.empty() || text.size() > kLongest) return std::nullopt;
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto is_digit = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
    if (text[i] != '_') {
      digits += text[i];
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return std::nullopt;
    }
  }
  return digits;
}

std::optional<double> read_float(std::string_view text) {
  const auto digits = digits_of(text);
  if (!digits) return std::nullopt;
  double number = 0;
  const auto [end, error] = std::from_chars(digits->data(), digits->data() + digits->size(), number);
  if (end != digits->data() + digits->size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::nullopt;
  return number;
}

/// Nothing for what is no integer; `run` fails for what is one and too large.
std::optional<int64_t> read_integer(const Run& run, std::string_view text, int base) {
  auto digits = digits_of(text);
  if (!digits) return std::nullopt;
  const bool is_hex = base == 16 && (digits->starts_with("0x") || digits->starts_with("0X"));
  std::string_view rest = *digits;
  if (is_hex) rest.remove_prefix(2);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number, base);
  if (end != rest.data() + rest.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) run.fail("an integer is too large");
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<int64_t> truncated(const Run& run, double number) {
  if (!std::isfinite(number)) return std::nullopt;
  if (std::abs(number) >= 9.2e18) run.fail("an integer is too large");
  return static_cast<int64_t>(number);
}

Value to_integer(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "int", arguments, {"default", "base"});
  refuse_undefined(run, input);
  const Value otherwise = given.find(0) == nullptr ? Value(int64_t{0}) : given.at(0);
  std::optional<int64_t> result;
  int64_t place = 0;
  if (const std::string_view* text = as_text(input)) {
    const int64_t base = given.integer(1, 10);
    if (base < 2 || base > 36) run.fail("int: the base must be from 2 to 36");
    run.walk(text->size());
    result = read_integer(run, *text, static_cast<int>(base));
    if (!result) {
      const auto number = read_float(*text);
      if (number) result = truncated(run, *number);
    }
  } else if (const int64_t* number = as_integer(input, place)) {
    result = *number;
  } else if (const double* real = std::get_if<double>(&input)) {
    result = truncated(run, *real);
  }
  return result ? Value(*result) : otherwise;
}

Value to_float(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "float", arguments, {"default"});
  refuse_undefined(run, input);
  int64_t place = 0;
  if (const int64_t* number = as_integer(input, place)) return static_cast<double>(*number);
  if (std::holds_alternative<double>(input)) return input;
  if (const std::string_view* text = as_text(input)) {
    run.walk(text->size());
    if (const auto number = read_float(*text)) return *number;
  }
  return given.find(0) == nullptr ? Value(0.0) : given.at(0);
}

Value absolute(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "abs", arguments, {});
  const Value positive = signed_value(run, "+", input);
  return holds(run, "<", positive, int64_t{0}) ? signed_value(run, "-", positive) : positive;
}

Value round_number(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "round", arguments, {"precision", "method"});
  const std::string_view method = given.text(1, "common");
  const int64_t precision = given.integer(0, 0);
  if (method != "common" && method != "ceil" && method != "floor") run.fail("round: \"method\" is common, ceil or floor");
  if (precision < 0 || precision > 300) run.fail("round: the precision must be from 0 to 300");
  int64_t place = 0;
  const int64_t* integer = as_integer(input, place);
  if (integer != nullptr && method == "common") return *integer;
  const double number = integer != nullptr ? static_cast<double>(*integer) : 0;
  if (integer == nullptr && !std::holds_alternative<double>(input)) {
    refuse_undefined(run, input);
    run.fail(fmt::format("round does not take a {}", type_of(input)));
  }
  const double value = integer != nullptr ? number : std::get<double>(input);
  if (!std::isfinite(value)) return value;
  if (method == "common") return std::stod(fmt::format("{:.{}f}", value, static_cast<int>(precision)));
  const double scale = std::pow(10.0, static_cast<double>(precision));
  return (method == "ceil" ? std::ceil(value * scale) : std::floor(value * scale)) / scale;
}

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

constexpr NamedFilter kFilters[] = {{"int", to_integer}, {"float", to_float}, {"abs", absolute}, {"round", round_number}};

}  // namespace

Filter find_number_filter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters), [&](const auto& one) { return one.name == name; });
  return found == std::end(kFilters) ? nullptr : found->filter;
}

}  // namespace sluice::jinja
