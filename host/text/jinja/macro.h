#pragma once

#include "host/text/jinja/object.h"
#include "host/text/jinja/syntax.h"

namespace sluice::jinja {

class Evaluator;
struct Scope;

/// A macro, or the body of {% call %} as its macro sees it (`caller`), in the scope in which it was written.
class Macro final : public Object {
 public:
  Macro(Evaluator& evaluator, const Statement& statement, Scope& scope)
      : evaluator_(evaluator), statement_(statement), scope_(scope) {}
  std::string_view type() const override { return "macro"; }
  bool is_callable() const override { return true; }
  Value attribute(Run& run, std::string_view name) override;
  Value call(Run& run, const Arguments& arguments) override;
  Value call_with(Evaluator& evaluator, const Arguments& arguments, const Value* caller);

 private:
  Evaluator& evaluator_;
  const Statement& statement_;
  Scope& scope_;
};

}  // namespace sluice::jinja
