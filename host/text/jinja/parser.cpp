#include "host/text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "host/text/jinja/expression_parser.h"
#include "host/text/jinja/lexer.h"
#include "host/text/jinja/run.h"

namespace sluice::jinja {
namespace {

using Kind = Statement::Kind;
using StatementPtr = std::unique_ptr<Statement>;

/// Statements: what stands in {% %}, and the text between.
class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  Body all() {
    Body body = statements({});
    if (!tokens_.is(Token::Kind::kEnd)) tokens_.fail("the template goes on behind its end");
    return body;
  }

  const std::set<std::string>& names() const { return tokens_.names(); }

 private:
  /// Statements up to a tag of one of `ends`, whose {% is taken but whose name is not.
  Body statements(std::initializer_list<std::string_view> ends) {
    Body body;
    while (!tokens_.is(Token::Kind::kEnd)) {
      const int line = tokens_.current().line;
      if (tokens_.is(Token::Kind::kData)) {
        StatementPtr text = make(Kind::kText);
        text->text = tokens_.take().text;
        body.push_back(std::move(text));
      } else if (tokens_.is(Token::Kind::kVariableBegin)) {
        tokens_.take();
        StatementPtr output = make(Kind::kOutput);
        output->value = tokens_.tuple();
        end_of_tag(Token::Kind::kVariableEnd);
        body.push_back(std::move(output));
      } else {
        tokens_.take();
        const bool is_end = std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return tokens_.is_name(end); });
        if (is_end) return body;
        StatementPtr statement = parse_statement();
        statement->line = line;
        body.push_back(std::move(statement));
      }
    }
    if (ends.size() > 0) tokens_.fail(fmt::format("{{% {} %}} is missing", *(ends.end() - 1)));
    return body;
  }

  /// A body up to {% `end` %}, which is taken.
  Body body_until(std::string_view end) {
    end_of_tag();
    Body body = statements({end});
    tokens_.take();
    return body;
  }

  /// One in which a loop around it cannot be left.
  Body closed_body_until(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = body_until(end);
    loops_ = loops;
    return body;
  }

  StatementPtr make(Kind kind) const {
    auto made = std::make_unique<Statement>();
    made->kind = kind;
    made->line = tokens_.current().line;
    return made;
  }

  void end_of_tag(Token::Kind kind = Token::Kind::kBlockEnd) {
    if (!tokens_.is(kind)) {
      tokens_.fail_wanting("the end of the tag");
    }
    tokens_.take();
  }

  StatementPtr parse_statement() {
    const ExpressionParser::Nesting nesting(tokens_);
    const Token name = tokens_.current();
    tokens_.expect_any_name("a tag");
    StatementPtr statement;
    if (name.text == "for") {
      statement = parse_for();
    } else if (name.text == "if") {
      statement = parse_if();
    } else if (name.text == "set") {
      statement = parse_set();
    } else if (name.text == "macro") {
      statement = parse_macro();
    } else if (name.text == "call") {
      statement = parse_call();
    } else if (name.text == "filter") {
      statement = make(Kind::kFilter);
      statement->value = tokens_.filters_of_block();
      statement->body = closed_body_until("endfilter");
    } else if (name.text == "with") {
      statement = parse_with();
    } else if (name.text == "generation") {  // marks what the assistant says, for training
      statement = make(Kind::kScope);
      statement->body = closed_body_until("endgeneration");
    } else if (name.text == "break" || name.text == "continue") {
      if (loops_ == 0) throw Fault(name.line, fmt::format("{{% {} %}} is in no loop", name.text));
      statement = make(name.text == "break" ? Kind::kBreak : Kind::kContinue);
    } else {
      throw Fault(name.line, fmt::format("the tag {{% {} %}} is not supported here", name.text));
    }
    end_of_tag();
    return statement;
  }

  StatementPtr parse_for() {
    StatementPtr loop = make(Kind::kFor);
    loop->target = tokens_.target(false);
    tokens_.expect_name("in");
    loop->value = tokens_.tuple(false);
    if (tokens_.skip_name("if")) loop->condition = tokens_.expression();
    if (tokens_.is_name("recursive")) tokens_.fail("recursive loops are not supported");
    end_of_tag();
    ++loops_;
    loop->body = statements({"else", "endfor"});
    --loops_;
    if (tokens_.skip_name("else")) {
      loop->otherwise = body_until("endfor");
    } else {
      tokens_.take();
    }
    return loop;
  }

  StatementPtr parse_if() {
    StatementPtr branches = make(Kind::kIf);
    ++tokens_.conditions;
    do {
      ExpressionPtr condition = tokens_.tuple(true);
      end_of_tag();
      branches->branches.emplace_back(std::move(condition), statements({"elif", "else", "endif"}));
    } while (tokens_.skip_name("elif"));
    if (tokens_.skip_name("else")) {
      branches->otherwise = body_until("endif");
    } else {
      tokens_.take();
    }
    --tokens_.conditions;
    return branches;
  }

  StatementPtr parse_set() {
    StatementPtr set = make(Kind::kSet);
    set->target = tokens_.target(true);
    if (tokens_.skip_operator("=")) {
      set->value = tokens_.tuple();
      return set;
    }
    set->kind = Kind::kSetBlock;
    if (tokens_.skip_operator("|")) set->value = tokens_.filters_of_block();
    set->body = closed_body_until("endset");
    return set;
  }

  std::vector<Parameter> parameters() {
    std::vector<Parameter> parameters;
    tokens_.expect_operator("(");
    while (!tokens_.skip_operator(")")) {
      if (!parameters.empty()) tokens_.expect_operator(",");
      Parameter parameter;
      parameter.name = tokens_.expect_any_name("a parameter");
      if (tokens_.skip_operator("=")) {
        parameter.otherwise = tokens_.expression();
      } else if (!parameters.empty() && parameters.back().otherwise != nullptr) {
        tokens_.fail("a parameter without a default follows one with a default");
      }
      parameters.push_back(std::move(parameter));
    }
    return parameters;
  }

  StatementPtr parse_macro() {
    StatementPtr macro = make(Kind::kMacro);
    macro->text = tokens_.expect_any_name("the macro's name");
    macro->parameters = parameters();
    macro->body = closed_body_until("endmacro");
    return macro;
  }

  StatementPtr parse_call() {
    StatementPtr call = make(Kind::kCall);
    if (tokens_.is_operator("(")) call->parameters = parameters();
    call->value = tokens_.expression();
    if (call->value->kind != Expression::Kind::kCall) tokens_.fail("{% call %} wants a call");
    call->body = closed_body_until("endcall");
    return call;
  }

  StatementPtr parse_with() {
    StatementPtr scope = make(Kind::kScope);
    while (!tokens_.is(Token::Kind::kBlockEnd)) {
      if (!scope->bindings.empty()) tokens_.expect_operator(",");
      ExpressionPtr target = tokens_.target(false);
      tokens_.expect_operator("=");
      scope->bindings.emplace_back(std::move(target), tokens_.expression());
    }
    scope->body = body_until("endwith");
    return scope;
  }

  ExpressionParser tokens_;
  int loops_ = 0;  // around the statement
};

}  // namespace

Body parse(std::string_view source, std::set<std::string>& names) {
  Parser parser(source);
  Body body = parser.all();
  names = parser.names();
  return body;
}

}  // namespace sluice::jinja
