#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "host/text/jinja/syntax.h"
#include "host/text/jinja/token_stream.h"

namespace sluice::jinja {

/// Makes expressions of tokens. Throws Fault with the line of what is wrong.
class ExpressionParser : public TokenStream {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : TokenStream(std::move(tokens)) {}

  /// An expression with `a if b else c`.
  ExpressionPtr expression();
  /// An expression, or several with commas between them, which are a tuple. Without `conditional` an `if` ends it.
  ExpressionPtr tuple(bool conditional = true);
  /// What a value may be given to: names, tuples of them, and attributes of namespaces where `may_be_attribute`.
  ExpressionPtr target(bool may_be_attribute);
  /// Filters without the first |, applied to a block.
  ExpressionPtr filters_of_block();

  /// Filters and tests that nobody knows are refused at once outside of conditions, as Jinja does, and else when they are
  /// reached.
  int conditions = 0;

  /// Names of variables that were read so far.
  const std::set<std::string>& names() const { return names_; }

  /// Counts how deep constructs are nested.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr literal_name(const Token& token);
  ExpressionPtr number(const Token& token);
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr parenthesis();
  ExpressionPtr postfixes(ExpressionPtr operand);
  ExpressionPtr call(ExpressionPtr operand);
  ExpressionPtr subscript(ExpressionPtr operand);
  ExpressionPtr filters_and_tests(ExpressionPtr operand);
  ExpressionPtr filter(ExpressionPtr operand);
  ExpressionPtr test(ExpressionPtr operand);
  void arguments(Expression& call);
  ExpressionPtr binary(Expression::Kind kind, const std::string& operation, ExpressionPtr left, ExpressionPtr right) const;
  ExpressionPtr node(Expression::Kind kind, std::string text = {}) const;
  void add(Expression& node, ExpressionPtr operand) const;

  int nesting_ = 0;
  std::set<std::string> names_;
};

}  // namespace sluice::jinja
