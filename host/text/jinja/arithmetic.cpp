#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "host/text/jinja/characters.h"
#include "host/text/jinja/methods.h"
#include "host/text/jinja/operations.h"

namespace sluice::jinja {
namespace {

[[noreturn]] void too_large(const Run& run) { run.fail("an integer is too large"); }

template <class Operation>
Value checked(const Run& run, Operation operation) {
  int64_t result = 0;
  if (operation(&result)) too_large(run);
  return result;
}

/// Python rounds quotients down, and a remainder has the sign of the divisor.
Value divide_down(const Run& run, std::string_view operation, int64_t left, int64_t right) {
  if (right == 0) run.fail("division by zero");
  if (right == -1) {
    if (operation == "%") return int64_t{0};
    return checked(run, [&](int64_t* result) { return __builtin_sub_overflow(int64_t{0}, left, result); });
  }
  const bool inexact = left % right != 0 && (left % right < 0) != (right < 0);
  if (operation == "%") return left % right + (inexact ? right : 0);
  return left / right - (inexact ? 1 : 0);
}

Value power(const Run& run, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) run.fail("division by zero");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? int64_t{1} : int64_t{-1};
  if (exponent > 63) too_large(run);
  int64_t result = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) too_large(run);
  }
  return result;
}

Value of_integers(const Run& run, std::string_view operation, int64_t left, int64_t right) {
  if (operation == "+") return checked(run, [&](int64_t* result) { return __builtin_add_overflow(left, right, result); });
  if (operation == "-") return checked(run, [&](int64_t* result) { return __builtin_sub_overflow(left, right, result); });
  if (operation == "*") return checked(run, [&](int64_t* result) { return __builtin_mul_overflow(left, right, result); });
  if (operation == "**") return power(run, left, right);
  if (operation == "//" || operation == "%") return divide_down(run, operation, left, right);
  if (right == 0) run.fail("division by zero");
  return static_cast<double>(left) / static_cast<double>(right);
}

Value of_floats(const Run& run, std::string_view operation, double left, double right) {
  if (operation == "+") return left + right;
  if (operation == "-") return left - right;
  if (operation == "*") return left * right;
  if (operation == "**") {
    const double result = std::pow(left, right);
    if (!std::isfinite(result) && std::isfinite(left) && std::isfinite(right)) run.fail("the result of ** is too large");
    if (std::isnan(result) && !std::isnan(left) && !std::isnan(right)) run.fail("the result of ** is no real number");
    return result;
  }
  if (right == 0) run.fail("division by zero");
  if (operation == "/") return left / right;
  double remainder = std::fmod(left, right);
  if (remainder != 0 && (remainder < 0) != (right < 0)) remainder += right;
  if (operation == "%") return remainder == 0 ? std::copysign(0.0, right) : remainder;
  return std::floor((left - remainder) / right + 0.5);
}

/// `text * times`.
Value repeated(Run& run, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (const std::string_view* text = as_text(value)) {
    if (text->empty() || count == 0) return std::string_view();
    if (count > Run::kMostBytes / text->size()) run.charge(Run::kMostBytes + 1);
    run.charge(count * text->size());
    std::string result;
    result.reserve(count * text->size());
    for (size_t i = 0; i < count; ++i) result += *text;
    return run.keep(std::move(result));
  }
  const List& list = *as_list(value);
  std::vector<Value> items;
  if (!list.items.empty()) {
    if (count > Run::kMostBytes / list.items.size()) run.charge(Run::kMostBytes + 1);
    run.charge(count * list.items.size() * sizeof(Value));
    for (size_t i = 0; i < count; ++i) items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return run.keep(std::move(items), list.kind);
}

bool is_sequence(const Value& value) {
  const List* list = as_list(value);
  return as_text(value) != nullptr || (list != nullptr && list->kind <= List::Kind::kTuple);
}

Value joined(Run& run, const List& left, const List& right) {
  run.charge((left.items.size() + right.items.size()) * sizeof(Value));
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return run.keep(std::move(items), left.kind);
}

Value joined(Run& run, std::string_view left, std::string_view right) {
  Writer writer(run);
  writer.add(left);
  writer.add(right);
  return writer.done();
}

std::optional<double> as_float(const Value& value) {
  int64_t place = 0;
  if (const double* number = std::get_if<double>(&value)) return *number;
  if (const int64_t* number = as_integer(value, place)) return static_cast<double>(*number);
  return std::nullopt;
}

void refuse_undefined(const Run& run, const Value& value) {
  if (is_undefined(value)) run.fail(fmt::format("'{}' is undefined", std::get<Undefined>(value).name));
}

}  // namespace

Value arithmetic(Run& run, std::string_view operation, const Value& left, const Value& right) {
  run.step();
  if (operation == "~") return joined(run, text_of(run, left), text_of(run, right));
  refuse_undefined(run, left);
  if (operation == "%" && as_text(left) != nullptr) return percent_format(run, *as_text(left), right);
  refuse_undefined(run, right);
  int64_t left_place = 0;
  int64_t right_place = 0;
  const int64_t* left_integer = as_integer(left, left_place);
  const int64_t* right_integer = as_integer(right, right_place);
  if (left_integer != nullptr && right_integer != nullptr) return of_integers(run, operation, *left_integer, *right_integer);
  const auto left_float = as_float(left);
  const auto right_float = as_float(right);
  if (left_float && right_float) return of_floats(run, operation, *left_float, *right_float);
  if (operation == "+") {
    if (as_text(left) != nullptr && as_text(right) != nullptr) return joined(run, *as_text(left), *as_text(right));
    const bool are_lists = is_sequence(left) && is_sequence(right) && as_list(left) != nullptr && as_list(right) != nullptr;
    if (are_lists && as_list(left)->kind == as_list(right)->kind) return joined(run, *as_list(left), *as_list(right));
  }
  if (operation == "*" && is_sequence(left) && right_integer != nullptr) return repeated(run, left, *right_integer);
  if (operation == "*" && is_sequence(right) && left_integer != nullptr) return repeated(run, right, *left_integer);
  run.fail(fmt::format("{} does not take a {} and a {}", operation, type_of(left), type_of(right)));
}

Value signed_value(Run& run, std::string_view operation, const Value& value) {
  refuse_undefined(run, value);
  int64_t place = 0;
  if (const int64_t* number = as_integer(value, place)) {
    return operation == "+" ? Value(*number) : of_integers(run, "-", 0, *number);
  }
  if (const double* number = std::get_if<double>(&value)) return operation == "+" ? *number : -*number;
  run.fail(fmt::format("{} does not take a {}", operation, type_of(value)));
}

}  // namespace sluice::jinja
