#include "host/text/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "host/text/jinja/filters.h"
#include "host/text/jinja/run.h"
#include "host/text/jinja/value_tests.h"
#include "scripting/base/printable_text.h"

namespace sluice::jinja {
namespace {

using Kind = Expression::Kind;

constexpr int kDeepestNesting = 100;  // of what is parsed by recursion
constexpr int kDeepestNodes = 300;    // of chains, too

}  // namespace

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (parser.nesting_ == kDeepestNesting) parser.fail("the template nests too deep");
  ++parser.nesting_;
}

ExpressionPtr ExpressionParser::node(Kind kind, std::string text) const {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = current().line;
  made->text = std::move(text);
  return made;
}

void ExpressionParser::add(Expression& node, ExpressionPtr operand) const {
  if (operand != nullptr) node.depth = std::max(node.depth, operand->depth + 1);
  if (node.depth > kDeepestNodes) fail("the expression is too long");
  node.operands.push_back(std::move(operand));
}

ExpressionPtr ExpressionParser::binary(Kind kind, const std::string& operation, ExpressionPtr left, ExpressionPtr right) const {
  ExpressionPtr made = node(kind, operation);
  made->line = left->line;
  add(*made, std::move(left));
  add(*made, std::move(right));
  return made;
}

ExpressionPtr ExpressionParser::expression() {
  const Nesting nesting(*this);
  ExpressionPtr value = either();
  while (is_name("if")) {
    ExpressionPtr made = node(Kind::kConditional);
    take();
    ++conditions;
    ExpressionPtr condition = either();
    add(*made, std::move(value));
    add(*made, std::move(condition));
    add(*made, skip_name("else") ? expression() : nullptr);
    --conditions;
    value = std::move(made);
  }
  return value;
}

ExpressionPtr ExpressionParser::either() {
  ExpressionPtr left = both();
  while (skip_name("or")) left = binary(Kind::kOr, {}, std::move(left), both());
  return left;
}

ExpressionPtr ExpressionParser::both() {
  ExpressionPtr left = negation();
  while (skip_name("and")) left = binary(Kind::kAnd, {}, std::move(left), negation());
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!is_name("not")) return comparison();
  const Nesting nesting(*this);
  ExpressionPtr made = node(Kind::kNot);
  take();
  add(*made, negation());
  return made;
}

ExpressionPtr ExpressionParser::comparison() {
  static constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
  ExpressionPtr first = sum();
  ExpressionPtr made;
  while (true) {
    std::string operation;
    const bool is_ordered = is(Token::Kind::kOperator) &&
                            std::find(std::begin(kOperators), std::end(kOperators), current().text) != std::end(kOperators);
    if (is_ordered) {
      operation = take().text;
    } else if (skip_name("in")) {
      operation = "in";
    } else if (is_name("not") && is_name("in", 1)) {
      take();
      take();
      operation = "not in";
    } else {
      return made != nullptr ? std::move(made) : std::move(first);
    }
    if (made == nullptr) {
      made = node(Kind::kComparison);
      add(*made, std::move(first));
    }
    made->names.push_back(operation);
    add(*made, sum());
  }
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (is_operator("+") || is_operator("-")) {
    const std::string operation = take().text;
    left = binary(Kind::kArithmetic, operation, std::move(left), concatenation());
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr left = product();
  while (skip_operator("~")) left = binary(Kind::kArithmetic, "~", std::move(left), product());
  return left;
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr left = power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    const std::string operation = take().text;
    left = binary(Kind::kArithmetic, operation, std::move(left), power());
  }
  return left;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary(true);
  while (skip_operator("**")) left = binary(Kind::kArithmetic, "**", std::move(left), unary(true));
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  ExpressionPtr value;
  if (is_operator("-") || is_operator("+")) {
    const Nesting nesting(*this);
    value = node(Kind::kSigned, current().text);
    take();
    add(*value, unary(false));
  } else {
    value = primary();
  }
  value = postfixes(std::move(value));
  return with_filters ? filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::primary() {
  if (skip_operator("(")) return parenthesis();
  if (skip_operator("[")) return list();
  if (skip_operator("{")) return dict();
  switch (current().kind) {
    case Token::Kind::kName:
      return literal_name(take());
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      return number(take());
    case Token::Kind::kText: {
      ExpressionPtr made = node(Kind::kLiteral, take().text);
      while (is(Token::Kind::kText)) made->text += take().text;
      made->literal = std::string_view(made->text);
      return made;
    }
    default:
      fail_wanting("a value");
  }
}

ExpressionPtr ExpressionParser::literal_name(const Token& token) {
  ExpressionPtr made = node(Kind::kLiteral);
  made->line = token.line;
  if (token.text == "true" || token.text == "True" || token.text == "false" || token.text == "False") {
    made->literal = token.text.front() == 't' || token.text.front() == 'T';
  } else if (token.text == "none" || token.text == "None") {
    made->literal = None{};
  } else {
    made->kind = Kind::kName;
    made->text = token.text;
    names_.insert(token.text);
  }
  return made;
}

ExpressionPtr ExpressionParser::number(const Token& token) {
  ExpressionPtr made = node(Kind::kLiteral);
  made->line = token.line;
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.kind == Token::Kind::kFloat) {
    double number = 0;
    if (std::from_chars(begin, end, number).ec != std::errc() || !std::isfinite(number)) fail("a number is out of range");
    made->literal = number;
  } else {
    int64_t number = 0;
    if (std::from_chars(begin, end, number).ec != std::errc()) fail("an integer is too large");
    made->literal = number;
  }
  return made;
}

ExpressionPtr ExpressionParser::list() {
  ExpressionPtr made = node(Kind::kList);
  while (!skip_operator("]")) {
    if (!made->operands.empty()) {
      expect_operator(",");
      if (skip_operator("]")) break;
    }
    add(*made, expression());
  }
  return made;
}

ExpressionPtr ExpressionParser::dict() {
  ExpressionPtr made = node(Kind::kDict);
  while (!skip_operator("}")) {
    if (!made->operands.empty()) {
      expect_operator(",");
      if (skip_operator("}")) break;
    }
    add(*made, expression());
    expect_operator(":");
    add(*made, expression());
  }
  return made;
}

ExpressionPtr ExpressionParser::parenthesis() {
  if (skip_operator(")")) return node(Kind::kTuple);
  ExpressionPtr value = tuple();
  expect_operator(")");
  return value;
}

ExpressionPtr ExpressionParser::tuple(bool conditional) {
  const Nesting nesting(*this);
  const auto next = [&] { return conditional ? expression() : either(); };
  const auto ends = [&] {
    return is(Token::Kind::kBlockEnd) || is(Token::Kind::kVariableEnd) || is_operator(")") || is_operator("]") ||
           is_operator("=") || is_name("in") || is_name("recursive");
  };
  ExpressionPtr first = next();
  if (!is_operator(",")) return first;
  ExpressionPtr made = node(Kind::kTuple);
  add(*made, std::move(first));
  while (skip_operator(",") && !ends()) add(*made, next());
  return made;
}

ExpressionPtr ExpressionParser::target(bool may_be_attribute) {
  const auto one = [&]() -> ExpressionPtr {
    const Nesting nesting(*this);
    if (skip_operator("(")) {
      ExpressionPtr inner = target(may_be_attribute);
      expect_operator(")");
      return inner;
    }
    ExpressionPtr name = node(Kind::kName);
    name->text = expect_any_name("a name");
    static constexpr std::string_view kReserved[] = {"true", "True", "false", "False", "none", "None"};
    if (std::find(std::begin(kReserved), std::end(kReserved), name->text) != std::end(kReserved)) {
      fail(fmt::format("\"{}\" cannot be set", name->text));
    }
    if (!may_be_attribute || !skip_operator(".")) return name;
    ExpressionPtr made = node(Kind::kAttribute);
    made->text = expect_any_name("an attribute");
    add(*made, std::move(name));
    return made;
  };
  ExpressionPtr first = one();
  if (!is_operator(",")) return first;
  ExpressionPtr made = node(Kind::kTuple);
  add(*made, std::move(first));
  while (skip_operator(",") && (is(Token::Kind::kName) || is_operator("(")) && !is_name("in")) add(*made, one());
  return made;
}

}  // namespace sluice::jinja
