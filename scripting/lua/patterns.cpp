#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numeric>

#include "scripting/lua/functions.h"

namespace sluice {

namespace {

constexpr const char* kRectUsage = "for example sluice.pattern.rect{size = {64, 64}, at = {0, 128}, stride = 2}";
constexpr const char* kDiagUsage = "for example sluice.pattern.diag{offset = 0, size = 512}";

Value made(const Arguments& arguments, const HeadPatterns& pattern) {
  return {Value::Kind::kHandle, arguments.builder().add_pattern(pattern), 0};
}

/// Of rows and of columns.
struct Pair {
  int row = 0;
  int column = 0;
};

int number_of(const Arguments& arguments, const std::string& name, const Datum& datum) {
  if (name == "size" && datum.kind == Datum::Kind::kNumber && datum.number == HUGE_VAL) return kUnbounded;
  const std::optional<int> number = datum.kind == Datum::Kind::kNumber ? whole_number(datum.number) : std::nullopt;
  if (number && *number != kUnbounded) return *number;
  arguments.fail(
      fmt::format("{} must be a whole number from -2^30 to 2^30 and is {}", name, describe(datum, arguments.builder().graph())));
}

/// One number for both, or {rows, columns}.
Pair pair_of(const Arguments& arguments, Options& options, const std::string& name, int otherwise) {
  const Datum* datum = options.find(name);
  if (datum == nullptr) return {otherwise, otherwise};
  if (datum->kind != Datum::Kind::kTable) {
    const int both = number_of(arguments, name, *datum);
    return {both, both};
  }
  const auto& entries = datum->entries;
  if (entries.size() != 2 || entries[0].key.kind != Datum::Kind::kNumber || entries[0].key.number != 1 ||
      entries[1].key.kind != Datum::Kind::kNumber || entries[1].key.number != 2) {
    arguments.fail(fmt::format("{} must be a number or {{rows, columns}}", name), kRectUsage);
  }
  return {number_of(arguments, name, entries[0].value), number_of(arguments, name, entries[1].value)};
}

Value rect(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(1, kRectUsage);
  Options options(arguments, arguments.at(0), kRectUsage);
  const Pair size = pair_of(arguments, options, "size", kUnbounded);
  const Pair at = pair_of(arguments, options, "at", 0);
  const Pair stride = pair_of(arguments, options, "stride", 1);
  const Pair offset = pair_of(arguments, options, "offset", 0);
  options.finish();
  return made(arguments, Pattern::rect({.row = at.row,
                                        .column = at.column,
                                        .rows = size.row,
                                        .columns = size.column,
                                        .row_stride = stride.row,
                                        .column_stride = stride.column,
                                        .row_offset = offset.row,
                                        .column_offset = offset.column}));
}

Value diag(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(1, kDiagUsage);
  Options options(arguments, arguments.at(0), kDiagUsage);
  const auto number = [&](const char* name, int otherwise) {
    const Datum* datum = options.find(name);
    return datum == nullptr ? otherwise : number_of(arguments, name, *datum);
  };
  const PatternDiag diag{.offset = number("offset", 0), .size = number("size", kUnbounded), .stride = number("stride", 1)};
  options.finish();
  return made(arguments, Pattern::diag(diag));
}

Value causal(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(0, "sluice.pattern.causal()");
  return made(arguments, Pattern::causal());
}

/// Of a name of the literature.
int size_of(const Arguments& arguments, size_t i, std::string_view what) {
  const int size = arguments.integer(i, what);
  if (size < 1 || size > Pattern::kMostNumber) arguments.fail(fmt::format("{} must be from 1 to 2^30 and is {}", what, size));
  return size;
}

/// A name of the literature that takes one whole number, or two.
template <Pattern (*make)(int)>
Value of_one(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(1, "one number");
  return made(arguments, make(size_of(arguments, 0, "the size")));
}
template <Pattern (*make)(int, int)>
Value of_two(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(2, "two numbers");
  return made(arguments, make(size_of(arguments, 0, "the first number"), size_of(arguments, 1, "the second number")));
}

Value by_head(const Arguments& arguments, const Function&) {
  constexpr const char* kUsage = "for example sluice.pattern.by_head{sluice.pattern.window(512), sluice.pattern.sink(64)}";
  arguments.expect_at_most(1, kUsage);
  if (arguments.at(0).kind != Datum::Kind::kTable) {
    arguments.fail(fmt::format("wants a list of patterns and got {}", arguments.describe(0)), kUsage);
  }
  std::vector<Pattern> heads;
  for (const auto& [key, pattern] : arguments.at(0).entries) {
    const auto number = static_cast<double>(heads.size() + 1);
    if (key.kind != Datum::Kind::kNumber || key.number != number) arguments.fail("wants a list, without names or gaps", kUsage);
    const HeadPatterns& head = arguments.pattern(pattern, fmt::format("element {}", heads.size() + 1));
    if (!head.is_same()) arguments.fail(fmt::format("element {} is itself a list of patterns by head", heads.size() + 1), kUsage);
    heads.push_back(head.of_head(0));
  }
  return made(arguments, HeadPatterns::of(std::move(heads)));
}

template <typename Join>
HeadPatterns join_heads(const Arguments& arguments, const HeadPatterns& a, const HeadPatterns& b, Join join) {
  const int together = std::lcm(a.size(), b.size());
  if (together > HeadPatterns::kMost) {
    arguments.fail(fmt::format("patterns of {} heads and of {} make {} together, and at most {} are told apart", a.size(),
                               b.size(), together, HeadPatterns::kMost),
                   "lists of by_head are joined head by head: give both the same length");
  }
  return joined(a, b, join);
}

template <typename Join>
Value join_all(const Arguments& arguments, Join join) {
  if (arguments.size() < 2) arguments.fail("wants two patterns or more");
  HeadPatterns all = arguments.pattern(0);
  for (size_t i = 1; i < arguments.size(); ++i) all = join_heads(arguments, all, arguments.pattern(i), join);
  return made(arguments, all);
}

Value intersect(const Arguments& arguments, const Function&) {
  return join_all(arguments, [](const Pattern& a, const Pattern& b) { return a & b; });
}
Value unite(const Arguments& arguments, const Function&) {
  return join_all(arguments, [](const Pattern& a, const Pattern& b) { return a | b; });
}

/// Lua gives an operator of one operand its operand twice.
Value complement_operator(const Arguments& arguments, const Function&) {
  return made(arguments, joined(arguments.pattern(0), arguments.pattern(0), [](const Pattern& a, const Pattern&) { return ~a; }));
}

Value complement(const Arguments& arguments, const Function& function) {
  arguments.expect_at_most(1, "pattern:complement(); what one pattern sees and another does not is a & ~b");
  return complement_operator(arguments, function);
}

Value spread(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(2, "block >> pattern");
  return made(arguments, join_heads(arguments, arguments.pattern(0), arguments.pattern(1), Pattern::spread));
}

Value refuse(const Arguments& arguments, const Function&) {
  arguments.fail("patterns have no such operator",
                 "there are & (both, also *), | (either, also +), ~ (not), >> (a block for each point)");
}

constexpr Function function(std::string_view name, Value (*run)(const Arguments&, const Function&), bool is_method) {
  return {name, run, Op::kConstant, Compare::kEq, is_method};
}

constexpr std::array kFunctions = {
    function("rect", rect, false),
    function("diag", diag, false),
    function("causal", causal, false),
    function("sink", of_one<Pattern::sink>, false),
    function("window", of_one<Pattern::window>, false),
    function("dilated", of_two<Pattern::dilated>, false),
    function("blocks", of_two<Pattern::blocks>, false),
    function("strided", of_two<Pattern::strided>, false),
    function("fixed", of_one<Pattern::fixed>, false),
    function("by_head", by_head, false),
    function("intersect", intersect, true),
    function("unite", unite, true),
    function("complement", complement, true),
    function("spread", spread, true),
};

constexpr std::array kOperators = {
    PatternOperator{"__band", {"&", intersect}},
    PatternOperator{"__mul", {"*", intersect}},
    PatternOperator{"__bor", {"|", unite}},
    PatternOperator{"__add", {"+", unite}},
    PatternOperator{"__shr", {">>", spread}},
    PatternOperator{"__bnot", {"~", complement_operator}},
    PatternOperator{"__bxor", {"~", refuse}},
    PatternOperator{"__shl", {"<<", refuse}},
    PatternOperator{"__sub", {"-", refuse}},
    PatternOperator{"__div", {"/", refuse}},
    PatternOperator{"__unm", {"unary minus", refuse}},
    PatternOperator{"__mod", {"%", refuse}},
    PatternOperator{"__pow", {"^", refuse}},
    PatternOperator{"__idiv", {"//", refuse}},
    PatternOperator{"__concat", {"..", refuse}},
    PatternOperator{"__len", {"#", refuse}},
    PatternOperator{"__call", {"call", refuse}},
    PatternOperator{"__eq", {"==", refuse}},
    PatternOperator{"__lt", {"<", refuse}},
    PatternOperator{"__le", {"<=", refuse}},
};

}  // namespace

std::span<const Function> pattern_functions() { return kFunctions; }
std::span<const PatternOperator> pattern_operators() { return kOperators; }

}  // namespace sluice
