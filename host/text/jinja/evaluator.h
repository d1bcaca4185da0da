#pragma once

#include <string>
#include <string_view>

#include "host/text/jinja/run.h"
#include "host/text/jinja/syntax.h"

namespace sluice::jinja {

/// Runs the nodes of a template, and writes its text.
class Evaluator {
 public:
  Evaluator(Run& run, Scope& variables) : run_(run), scope_(&variables) {}

  std::string text_of(const Body& body);
  /// The text of a macro's body, called with `arguments`, in a scope within `around`; null caller: there is none.
  Value call_macro(const Statement& macro, Scope& around, const Arguments& arguments, const Value* caller);

 private:
  enum class Next : unsigned char { kGoOn, kBreak, kContinue };

  Next execute(const Body& body);
  Next execute(const Statement& statement);
  void execute_set(const Statement& statement);
  Next execute_if(const Statement& statement);
  void execute_for(const Statement& statement);
  Next execute_scope(const Statement& statement);
  void execute_call(const Statement& statement);
  void execute_filter(const Statement& statement);
  std::vector<Value> items_of_loop(const Statement& statement);
  /// What `body` writes, in a scope of its own.
  Value captured(const Body& body);
  void assign(const Expression& target, const Value& value);
  void set_name(std::string_view name, const Value& value);

  Value evaluate(const Expression& expression);
  Value evaluate_name(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_comparison(const Expression& expression);
  Value evaluate_conditional(const Expression& expression);
  Value evaluate_slice(const Expression& expression);
  Value evaluate_call(const Expression& expression, const Value* caller = nullptr);
  Value evaluate_filter(const Expression& expression);
  Value evaluate_test(const Expression& expression);
  std::vector<Value> evaluate_all(const Expression& expression);
  Arguments arguments_of(const Expression& expression);

  Run& run_;
  Scope* scope_;
  Writer* out_ = nullptr;
  Value captured_;  // what filters of a block are applied to
};

}  // namespace sluice::jinja
