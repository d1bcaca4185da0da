#include "scripting/lua/parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <cmath>

#include "scripting/base/suggest.h"
#include "scripting/graph/verify.h"
#include "scripting/lua/functions.h"

namespace sluice {

const std::string* Parameters::declare(const std::string& name) {
  declared_.insert(name);
  const auto set = values_.find(name);
  return set == values_.end() ? nullptr : &set->second;
}

void Parameters::check_all_declared() const {
  for (const auto& [name, value] : values_) {
    if (declared_.contains(name)) continue;
    const std::vector<std::string> known(declared_.begin(), declared_.end());
    const std::string meant = did_you_mean(name, known);
    throw InputError(fmt::format("no parameter is called \"{:.64}\"", name),
                     known.empty()   ? "parameters are declared by sluice.parameter(name, value)"
                     : meant.empty() ? fmt::format("there are {}", fmt::join(known, ", "))
                                     : meant);
  }
}

bool parse_number(std::string_view text, double& number) {
  const auto parse = [](std::string_view part, double& value) {
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), value);
    return parsed.ec == std::errc() && parsed.ptr == part.data() + part.size() && std::isfinite(value);
  };
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return parse(text, number);
  double divisor = 0;
  if (!parse(text.substr(0, slash), number) || !parse(text.substr(slash + 1), divisor) || divisor == 0) return false;
  number /= divisor;
  return std::isfinite(number);
}

namespace {

constexpr const char* kUsage =
    "sluice.parameter(\"pages\", 3), or one of several: sluice.parameter(\"score\", {\"mean\", \"max\"})";

bool is_value(const Datum& datum) {
  return datum.kind == Datum::Kind::kNumber || datum.kind == Datum::Kind::kBoolean || datum.kind == Datum::Kind::kText;
}

/// A value as a script has it. Text lives in the parameters, or in the script's own table of texts.
Value value_of(const Datum& datum, std::string_view lasting) {
  Value value;
  constexpr double kExact = 0x1p53;
  if (datum.kind == Datum::Kind::kBoolean) {
    value.kind = Value::Kind::kBoolean;
    value.boolean = datum.boolean;
  } else if (datum.kind == Datum::Kind::kText) {
    value.kind = Value::Kind::kText;
    value.text = lasting;
  } else if (std::floor(datum.number) == datum.number && std::fabs(datum.number) < kExact) {
    value.kind = Value::Kind::kInteger;
    value.integer = static_cast<int64_t>(datum.number);
  } else {
    value.kind = Value::Kind::kNumber;
    value.number = datum.number;
  }
  return value;
}

std::string text_of(const Datum& datum) {
  if (datum.kind == Datum::Kind::kText) return datum.text;
  return datum.kind == Datum::Kind::kBoolean ? (datum.boolean ? "true" : "false") : fmt::format("{}", datum.number);
}

/// `text` as a value of the kind of `like`.
std::optional<Datum> parsed_as(const Datum& like, const std::string& text) {
  Datum datum = like;
  if (like.kind == Datum::Kind::kText) datum.text = text;
  if (like.kind == Datum::Kind::kNumber && !parse_number(text, datum.number)) return {};
  if (like.kind == Datum::Kind::kBoolean) {
    if (text != "true" && text != "false") return {};
    datum.boolean = text == "true";
  }
  return datum;
}

bool equal(const Datum& a, const Datum& b) {
  return a.kind == b.kind && a.boolean == b.boolean && a.number == b.number && a.text == b.text;
}

/// What a parameter may be, its own value first; one value stands for any of its kind.
std::vector<Datum> choices_of(const Arguments& arguments, const Datum& given) {
  if (is_value(given)) return {given};
  std::vector<Datum> choices;
  if (given.kind == Datum::Kind::kTable) {
    for (const auto& [key, choice] : given.entries) {
      if (key.kind != Datum::Kind::kNumber || !is_value(choice) || choice.kind != given.entries.front().value.kind) {
        arguments.fail("the choices of a parameter are a list of numbers, or of texts", kUsage);
      }
      choices.push_back(choice);
    }
  }
  if (choices.empty()) {
    arguments.fail(fmt::format("wants a number, a text, true or false, or a list of them, and got {}",
                               describe(given, arguments.builder().graph())),
                   kUsage);
  }
  return choices;
}

/// parameter("name", value) or parameter("name", {value, another, ...}): the value, or what the parameter is set to.
Value parameter(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(2, kUsage);
  const std::string name = arguments.text(0, "the name of a parameter");
  const bool is_name =
      !name.empty() && name.size() <= ParameterLimits::kNameLength &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos;
  if (!is_name) arguments.fail("a parameter's name wants letters, digits and '_', at most 64");
  const std::vector<Datum> choices = choices_of(arguments, arguments.at(1));
  Parameters& parameters = arguments.builder().parameters();
  if (!parameters.has(name) && parameters.size() >= ParameterLimits::kNumber) {
    arguments.fail(fmt::format("the script has more than {} parameters", ParameterLimits::kNumber));
  }
  for (const Datum& choice : choices) {
    if (choice.kind == Datum::Kind::kNumber && !std::isfinite(choice.number))
      arguments.fail(fmt::format("\"{}\" is no finite number", name));
    if (choice.text.size() > ParameterLimits::kTextLength) arguments.fail(fmt::format("a value of \"{}\" is too long", name));
  }
  const std::string* const set = parameters.declare(name);
  if (set == nullptr) return value_of(choices.front(), parameters.keep(choices.front().text));
  const std::optional<Datum> value = parsed_as(choices.front(), *set);
  if (!value) {
    const bool is_number = choices.front().kind == Datum::Kind::kNumber;
    arguments.fail(
        fmt::format("parameter \"{}\" wants {} and is set to \"{:.40}\"", name, is_number ? "a number" : "true or false", *set),
        is_number ? "for example 3, 0.5 or 1/16" : "");
  }
  const bool is_chosen =
      choices.size() == 1 || std::any_of(choices.begin(), choices.end(), [&](const Datum& each) { return equal(each, *value); });
  if (!is_chosen) {
    std::vector<std::string> texts;
    for (const Datum& choice : choices) texts.push_back(text_of(choice));
    arguments.fail(fmt::format("parameter \"{}\" is set to \"{:.40}\", which is none of its choices", name, *set),
                   did_you_mean(*set, texts));
  }
  return value_of(*value, *set);
}

constexpr std::array kFunctions = {Function{"parameter", parameter, Op::kConstant, Compare::kEq, false}};

}  // namespace

std::span<const Function> parameter_functions() { return kFunctions; }

}  // namespace sluice
