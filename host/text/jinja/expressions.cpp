// Expressions: each kind of node as its value.

#include <fmt/format.h>

#include "host/text/jinja/evaluator.h"
#include "host/text/jinja/filters.h"
#include "host/text/jinja/functions.h"
#include "host/text/jinja/macro.h"
#include "host/text/jinja/operations.h"
#include "host/text/jinja/value_tests.h"

namespace sluice::jinja {

using Kind = Expression::Kind;

Value Evaluator::evaluate(const Expression& expression) {
  const Run::Level level(run_);
  run_.step();
  run_.line = expression.line;
  const auto operand = [&](size_t i) { return evaluate(*expression.operands[i]); };
  switch (expression.kind) {
    case Kind::kLiteral:
      return expression.literal;
    case Kind::kName:
      return evaluate_name(expression);
    case Kind::kList:
      return run_.keep(evaluate_all(expression));
    case Kind::kTuple:
      return run_.keep(evaluate_all(expression), List::Kind::kTuple);
    case Kind::kDict:
      return evaluate_dict(expression);
    case Kind::kAnd: {
      const Value left = operand(0);
      return truth(left) ? operand(1) : left;
    }
    case Kind::kOr: {
      const Value left = operand(0);
      return truth(left) ? left : operand(1);
    }
    case Kind::kNot:
      return !truth(operand(0));
    case Kind::kComparison:
      return evaluate_comparison(expression);
    case Kind::kConditional:
      return evaluate_conditional(expression);
    case Kind::kSlice:
      return evaluate_slice(expression);
    case Kind::kCall:
      return evaluate_call(expression);
    case Kind::kFilter:
      return evaluate_filter(expression);
    case Kind::kTest:
      return evaluate_test(expression);
    case Kind::kSpread:  // which only a call has
      return operand(0);
    case Kind::kCaptured:
      return captured_;
    case Kind::kSigned:
    case Kind::kAttribute: {
      const Value value = operand(0);
      run_.line = expression.line;
      return expression.kind == Kind::kSigned ? signed_value(run_, expression.text, value)
                                              : attribute(run_, value, expression.text);
    }
    case Kind::kArithmetic:
    case Kind::kItem: {
      const Value left = operand(0);
      const Value right = operand(1);
      run_.line = expression.line;
      return expression.kind == Kind::kItem ? item(run_, left, right) : arithmetic(run_, expression.text, left, right);
    }
  }
  return Undefined{};
}

Value Evaluator::evaluate_name(const Expression& expression) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    run_.step(1 + scope->names.size() / 8);
    for (const auto& [name, value] : scope->names) {
      if (name == expression.text) return value;
    }
  }
  return global(run_, expression.text);
}

std::vector<Value> Evaluator::evaluate_all(const Expression& expression) {
  std::vector<Value> values;
  for (const ExpressionPtr& operand : expression.operands) values.push_back(evaluate(*operand));
  return values;
}

Value Evaluator::evaluate_dict(const Expression& expression) {
  Dict dict;
  for (size_t i = 0; i < expression.operands.size(); i += 2) {
    const Value key = evaluate(*expression.operands[i]);
    set_item(run_, dict, key, evaluate(*expression.operands[i + 1]));
  }
  return run_.keep(std::move(dict.items));
}

Value Evaluator::evaluate_comparison(const Expression& expression) {
  Value left = evaluate(*expression.operands[0]);
  for (size_t i = 0; i < expression.names.size(); ++i) {
    const Value right = evaluate(*expression.operands[i + 1]);
    run_.line = expression.line;
    if (!holds(run_, expression.names[i], left, right)) return false;
    left = right;
  }
  return true;
}

Value Evaluator::evaluate_conditional(const Expression& expression) {
  if (truth(evaluate(*expression.operands[1]))) return evaluate(*expression.operands[0]);
  if (expression.operands[2] != nullptr) return evaluate(*expression.operands[2]);
  return Undefined{"the value of an if without else"};
}

Value Evaluator::evaluate_slice(const Expression& expression) {
  const Value value = evaluate(*expression.operands[0]);
  std::array<Value, 3> bounds;
  for (size_t i = 0; i < bounds.size(); ++i) {
    const ExpressionPtr& bound = expression.operands[i + 1];
    bounds[i] = bound == nullptr ? Value(None{}) : evaluate(*bound);
  }
  run_.line = expression.line;
  return slice(run_, value, bounds[0], bounds[1], bounds[2]);
}

Arguments Evaluator::arguments_of(const Expression& expression) {
  Arguments arguments;
  const size_t named = expression.operands.size() - expression.names.size();
  for (size_t i = 1; i < expression.operands.size(); ++i) {
    const bool is_spread = expression.operands[i]->kind == Kind::kSpread;
    const Value value = evaluate(is_spread ? *expression.operands[i]->operands[0] : *expression.operands[i]);
    if (is_spread) {
      const std::span<const Value> items = iterate(run_, value);
      run_.charge(items.size() * sizeof(Value));
      arguments.values.insert(arguments.values.end(), items.begin(), items.end());
    } else if (i < named) {
      arguments.values.push_back(value);
    } else {
      arguments.named.emplace_back(expression.names[i - named], value);
    }
  }
  return arguments;
}

Value Evaluator::evaluate_call(const Expression& expression, const Value* caller) {
  const Value callee = evaluate(*expression.operands[0]);
  const Arguments arguments = arguments_of(expression);
  run_.line = expression.line;
  if (is_undefined(callee)) run_.fail(fmt::format("'{}' is undefined, and cannot be called", std::get<Undefined>(callee).name));
  Object* object = as_object(callee);
  if (object == nullptr) run_.fail(fmt::format("a {} cannot be called", type_of(callee)));
  if (auto* macro = dynamic_cast<Macro*>(object)) return macro->call_with(*this, arguments, caller);
  if (caller != nullptr) run_.fail("{% call %} wants a macro");
  return object->call(run_, arguments);
}

Value Evaluator::evaluate_filter(const Expression& expression) {
  const Value input = evaluate(*expression.operands[0]);
  const Filter filter = find_filter(expression.text);
  const Arguments arguments = arguments_of(expression);
  run_.line = expression.line;
  if (filter == nullptr) run_.fail(fmt::format("there is no filter \"{}\" here", expression.text));
  return filter(run_, input, arguments);
}

Value Evaluator::evaluate_test(const Expression& expression) {
  const Value input = evaluate(*expression.operands[0]);
  const Test test = find_test(expression.text);
  const Arguments arguments = arguments_of(expression);
  run_.line = expression.line;
  if (test == nullptr) run_.fail(fmt::format("there is no test \"{}\" here", expression.text));
  return test(run_, input, arguments);
}

}  // namespace sluice::jinja
