#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::jinja {

struct Token {
  enum class Kind : unsigned char {
    kData,  // text between tags
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kText,  // a quoted one, without quotes and escapes
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 1;
};

/// The tokens of a template, the last one kEnd. As Hugging Face has Jinja set: a line break after a block or comment, and white
/// space before one at the beginning of a line, are dropped (trim_blocks, lstrip_blocks), and so is the last line break.
/// Throws Fault.
std::vector<Token> tokenize(std::string_view source);

}  // namespace sluice::jinja
