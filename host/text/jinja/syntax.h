#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/text/jinja/value.h"

namespace sluice::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// What `parse` makes of a template. Nodes never move: texts in values refer to them.
struct Expression {
  enum class Kind : unsigned char {
    kLiteral,      // `literal`
    kName,         // `text`
    kList,         // operands
    kTuple,        // operands
    kDict,         // operands: key, value, key, value, ...
    kSigned,       // `text` is + or -; operand
    kArithmetic,   // `text` is an operator; two operands
    kComparison,   // operands, and between each two an operator of `names`
    kAnd,          // two operands
    kOr,           // two operands
    kNot,          // operand
    kConditional,  // then, condition, else (may be null)
    kAttribute,    // operand `.text`
    kItem,         // operand [operand]
    kSlice,        // operand [begin : end : step], each of which may be null
    kCall,         // operand (arguments)
    kSpread,       // *operand among arguments
    kFilter,       // operand | `text` (arguments)
    kTest,         // operand is `text` (arguments)
    kCaptured,     // the text of the block that a filter is applied to
  };
  Kind kind = Kind::kLiteral;
  int line = 0;
  int depth = 1;  // of nodes within each other
  std::string text;
  Value literal;
  std::vector<ExpressionPtr> operands;  // of calls, filters and tests the first is what they are applied to
  std::vector<std::string> names;       // operators of a comparison; names of the last operands of a call, filter or test
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // null: undefined
};

struct Statement {
  enum class Kind : unsigned char {
    kText,      // `text`
    kOutput,    // value
    kFor,       // target in value if condition: body, else otherwise
    kIf,        // branches, else otherwise
    kSet,       // target = value
    kSetBlock,  // target = text of body, through value (filters, or null)
    kMacro,     // `text` (parameters): body
    kCall,      // value is a call; parameters and body are its caller
    kFilter,    // body through value
    kScope,     // bindings ({% with %}), then body; their values are of the scope around it
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 0;
  std::string text;
  ExpressionPtr target;  // a name, a tuple of targets, or an attribute of a namespace
  ExpressionPtr value;
  ExpressionPtr condition;
  std::vector<Parameter> parameters;
  std::vector<std::pair<ExpressionPtr, Body>> branches;           // condition, body
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> bindings;  // target, value
  Body body;
  Body otherwise;
};

}  // namespace sluice::jinja
