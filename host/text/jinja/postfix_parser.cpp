// What may follow a value: attributes, items, calls, filters and tests.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "host/text/jinja/expression_parser.h"
#include "host/text/jinja/filters.h"
#include "host/text/jinja/value_tests.h"

namespace sluice::jinja {
namespace {

using Kind = Expression::Kind;

}  // namespace

ExpressionPtr ExpressionParser::postfixes(ExpressionPtr operand) {
  while (true) {
    if (is_operator(".")) {
      take();
      ExpressionPtr made = node(Kind::kAttribute);
      if (is(Token::Kind::kInteger)) {
        made->kind = Kind::kItem;
        add(*made, std::move(operand));
        add(*made, number(take()));
      } else {
        made->text = expect_any_name("an attribute");
        add(*made, std::move(operand));
      }
      operand = std::move(made);
    } else if (skip_operator("[")) {
      operand = subscript(std::move(operand));
    } else if (is_operator("(")) {
      operand = call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::call(ExpressionPtr operand) {
  ExpressionPtr made = node(Kind::kCall);
  add(*made, std::move(operand));
  arguments(*made);
  return made;
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr operand) {
  ExpressionPtr made = node(Kind::kItem);
  add(*made, std::move(operand));
  const auto bound = [&] { return is_operator(":") || is_operator("]") ? nullptr : expression(); };
  ExpressionPtr first = bound();
  if (!is_operator(":")) {
    if (first == nullptr) fail("an index is missing");
    if (is_operator(",")) fail("several indices at once are not supported");
    add(*made, std::move(first));
    expect_operator("]");
    return made;
  }
  made->kind = Kind::kSlice;
  add(*made, std::move(first));
  take();
  add(*made, bound());
  add(*made, skip_operator(":") ? bound() : nullptr);
  expect_operator("]");
  return made;
}

void ExpressionParser::arguments(Expression& call) {
  const Nesting nesting(*this);
  expect_operator("(");
  for (bool first = true; !skip_operator(")"); first = false) {
    if (!first) {
      expect_operator(",");
      if (skip_operator(")")) return;
    }
    if (is_operator("**")) fail("arguments with ** are not supported");
    if (is_operator("*")) {
      ExpressionPtr spread = node(Kind::kSpread);
      take();
      add(*spread, expression());
      if (!call.names.empty()) fail("an argument without a name follows one with a name");
      add(call, std::move(spread));
      continue;
    }
    const bool is_named = is(Token::Kind::kName) && is_operator("=", 1);
    if (is_named) {
      std::string name = take().text;
      take();
      if (std::find(call.names.begin(), call.names.end(), name) != call.names.end()) {
        fail(fmt::format("the argument \"{}\" is given twice", name));
      }
      call.names.push_back(std::move(name));
    } else if (!call.names.empty()) {
      fail("an argument without a name follows one with a name");
    }
    add(call, expression());
  }
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr operand) {
  while (true) {
    if (skip_operator("|")) {
      operand = filter(std::move(operand));
    } else if (is_name("is")) {
      operand = test(std::move(operand));
    } else if (is_operator("(")) {
      operand = call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr operand) {
  ExpressionPtr made = node(Kind::kFilter);
  made->text = expect_any_name("a filter");
  if (conditions == 0 && find_filter(made->text) == nullptr) fail(fmt::format("there is no filter \"{}\" here", made->text));
  add(*made, std::move(operand));
  if (is_operator("(")) arguments(*made);
  return made;
}

ExpressionPtr ExpressionParser::filters_of_block() {
  ExpressionPtr value = filter(node(Kind::kCaptured));
  while (skip_operator("|")) value = filter(std::move(value));
  return value;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr operand) {
  take();
  ExpressionPtr made = node(Kind::kTest);
  const bool negated = skip_name("not");
  made->text = expect_any_name("a test");
  if (conditions == 0 && find_test(made->text) == nullptr) fail(fmt::format("there is no test \"{}\" here", made->text));
  add(*made, std::move(operand));
  const bool begins_value = is(Token::Kind::kName) || is(Token::Kind::kText) || is(Token::Kind::kInteger) ||
                            is(Token::Kind::kFloat) || is_operator("[") || is_operator("{");
  if (is_operator("(")) {
    arguments(*made);
  } else if (begins_value && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) fail("tests cannot follow each other");
    add(*made, postfixes(primary()));
  }
  if (!negated) return made;
  ExpressionPtr opposite = node(Kind::kNot);
  add(*opposite, std::move(made));
  return opposite;
}

}  // namespace sluice::jinja
