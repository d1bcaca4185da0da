// Statements: what is written, set and gone through.

#include <fmt/format.h>

#include <algorithm>

#include "host/text/jinja/evaluator.h"
#include "host/text/jinja/loop.h"
#include "host/text/jinja/macro.h"
#include "host/text/jinja/operations.h"

namespace sluice::jinja {
namespace {

using Kind = Statement::Kind;

/// Has a variable hold something else until the end of the block.
template <class T>
class Restored {
 public:
  Restored(T& variable, T value) : variable_(variable), before_(std::exchange(variable, value)) {}
  ~Restored() { variable_ = before_; }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  T& variable_;
  const T before_;
};

/// Refuses arguments that `macro` does not take.
void check_arguments(const Run& run, const Statement& macro, const Arguments& arguments) {
  const std::string_view name = macro.text.empty() ? std::string_view("caller") : macro.text;
  const std::vector<Parameter>& parameters = macro.parameters;
  if (arguments.values.size() > parameters.size()) {
    run.fail(fmt::format("{} takes {} arguments, not {}", name, parameters.size(), arguments.values.size()));
  }
  for (const auto& argument : arguments.named) {
    const auto place = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const Parameter& parameter) { return parameter.name == argument.first; });
    if (place == parameters.end()) run.fail(fmt::format("{} takes no argument \"{}\"", name, argument.first));
    if (place - parameters.begin() < static_cast<std::ptrdiff_t>(arguments.values.size())) {
      run.fail(fmt::format("{} is given \"{}\" twice", name, argument.first));
    }
  }
}

}  // namespace

std::string Evaluator::text_of(const Body& body) {
  Writer writer(run_);
  const Restored<Writer*> out(out_, &writer);
  execute(body);
  return writer.take();
}

Value Evaluator::captured(const Body& body) {
  Writer writer(run_);
  const Restored<Writer*> out(out_, &writer);
  const Restored<Scope*> scope(scope_, &run_.make_scope(scope_));
  execute(body);
  return writer.done();
}

Evaluator::Next Evaluator::execute(const Body& body) {
  for (const auto& statement : body) {
    const Next next = execute(*statement);
    if (next != Next::kGoOn) return next;
  }
  return Next::kGoOn;
}

Evaluator::Next Evaluator::execute(const Statement& statement) {
  const Run::Level level(run_);
  run_.step();
  run_.line = statement.line;
  switch (statement.kind) {
    case Kind::kText:
      out_->add(statement.text);
      break;
    case Kind::kOutput: {
      const Value value = evaluate(*statement.value);
      run_.line = statement.line;
      write_text(*out_, value);
      break;
    }
    case Kind::kFor:
      execute_for(statement);
      break;
    case Kind::kIf:
      return execute_if(statement);
    case Kind::kSet:
    case Kind::kSetBlock:
      execute_set(statement);
      break;
    case Kind::kMacro:
      set_name(statement.text, &run_.make<Macro>(*this, statement, *scope_));
      break;
    case Kind::kCall:
      execute_call(statement);
      break;
    case Kind::kFilter:
      execute_filter(statement);
      break;
    case Kind::kScope:
      return execute_scope(statement);
    case Kind::kBreak:
      return Next::kBreak;
    case Kind::kContinue:
      return Next::kContinue;
  }
  return Next::kGoOn;
}

Evaluator::Next Evaluator::execute_if(const Statement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    if (truth(evaluate(*condition))) return execute(body);
  }
  return execute(statement.otherwise);
}

void Evaluator::execute_set(const Statement& statement) {
  if (statement.kind == Kind::kSet) return assign(*statement.target, evaluate(*statement.value));
  Value text = captured(statement.body);
  if (statement.value != nullptr) {
    captured_ = text;
    text = evaluate(*statement.value);
  }
  assign(*statement.target, text);
}

void Evaluator::execute_filter(const Statement& statement) {
  captured_ = captured(statement.body);
  write_text(*out_, evaluate(*statement.value));
}

Evaluator::Next Evaluator::execute_scope(const Statement& statement) {
  std::vector<Value> values;
  for (const auto& [target, value] : statement.bindings) values.push_back(evaluate(*value));
  const Restored<Scope*> scope(scope_, &run_.make_scope(scope_));
  for (size_t i = 0; i < values.size(); ++i) assign(*statement.bindings[i].first, values[i]);
  return execute(statement.body);
}

void Evaluator::execute_call(const Statement& statement) {
  const Value caller = &run_.make<Macro>(*this, statement, *scope_);
  write_text(*out_, evaluate_call(*statement.value, &caller));
}

std::vector<Value> Evaluator::items_of_loop(const Statement& statement) {
  const Value value = evaluate(*statement.value);
  run_.line = statement.line;
  const std::span<const Value> all = iterate(run_, value);
  run_.charge(all.size() * sizeof(Value));
  if (statement.condition == nullptr) return {all.begin(), all.end()};
  std::vector<Value> items;
  const Restored<Scope*> scope(scope_, &run_.make_scope(scope_));
  for (const Value& item : all) {
    scope_->names.clear();
    assign(*statement.target, item);
    if (truth(evaluate(*statement.condition))) items.push_back(item);
  }
  return items;
}

void Evaluator::execute_for(const Statement& statement) {
  const Value kept = run_.keep(items_of_loop(statement));
  const std::vector<Value>& items = as_list(kept)->items;
  Loop& loop = run_.make<Loop>(items);
  bool has_ended = false;  // an iteration, by neither break nor continue: Jinja runs {% else %} unless one has
  for (size_t i = 0; i < items.size(); ++i) {
    const Restored<Scope*> scope(scope_, &run_.make_scope(scope_));
    loop.go_to(i);
    set_name("loop", &loop);
    run_.line = statement.line;
    assign(*statement.target, items[i]);
    const Next next = execute(statement.body);
    if (next == Next::kBreak) break;
    has_ended = has_ended || next == Next::kGoOn;
  }
  if (has_ended) return;
  const Restored<Scope*> scope(scope_, &run_.make_scope(scope_));
  execute(statement.otherwise);
}

void Evaluator::assign(const Expression& target, const Value& value) {
  if (target.kind == Expression::Kind::kName) return set_name(target.text, value);
  if (target.kind == Expression::Kind::kAttribute) {
    auto* space = dynamic_cast<Namespace*>(as_object(evaluate(*target.operands[0])));
    run_.line = target.line;
    if (space == nullptr) run_.fail(fmt::format("\"{}\" is no namespace: it has no attribute to set", target.operands[0]->text));
    return space->set(run_, target.text, value);
  }
  const std::span<const Value> items = iterate(run_, value);
  if (items.size() != target.operands.size()) {
    run_.line = target.line;
    run_.fail(fmt::format("{} names are wanted for {} values", items.size(), target.operands.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) assign(*target.operands[i], items[i]);
}

void Evaluator::set_name(std::string_view name, const Value& value) {
  run_.step(1 + scope_->names.size() / 8);
  const auto found =
      std::find_if(scope_->names.begin(), scope_->names.end(), [&](const auto& known) { return known.first == name; });
  if (found != scope_->names.end()) {
    found->second = value;
    return;
  }
  run_.charge(sizeof(scope_->names.front()));
  scope_->names.emplace_back(name, value);
}

Value Evaluator::call_macro(const Statement& macro, Scope& around, const Arguments& arguments, const Value* caller) {
  check_arguments(run_, macro, arguments);
  const Restored<Scope*> scope(scope_, &run_.make_scope(&around));
  if (caller != nullptr) set_name("caller", *caller);
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& argument) { return argument.first == parameter.name; });
    Value value = Undefined{parameter.name};
    if (i < arguments.values.size()) {
      value = arguments.values[i];
    } else if (named != arguments.named.end()) {
      value = named->second;
    } else if (parameter.otherwise != nullptr) {
      value = evaluate(*parameter.otherwise);
    }
    set_name(parameter.name, value);
  }
  Writer writer(run_);
  const Restored<Writer*> out(out_, &writer);
  execute(macro.body);
  return writer.done();
}

Value Macro::attribute(Run&, std::string_view name) {
  return name == "name" ? Value(std::string_view(statement_.text)) : Value(Undefined{name});
}

Value Macro::call(Run&, const Arguments& arguments) { return call_with(evaluator_, arguments, nullptr); }

Value Macro::call_with(Evaluator& evaluator, const Arguments& arguments, const Value* caller) {
  return evaluator.call_macro(statement_, scope_, arguments, caller);
}

}  // namespace sluice::jinja
