#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace sluice::repl {

/// A word, number, text or symbol of Lua source. Comments and white space are none.
struct Token {
  enum class Kind : uint8_t { kName, kKeyword, kNumber, kText, kSymbol };
  Kind kind = Kind::kSymbol;
  std::string_view text;  // of the source
  size_t begin = 0;       // offset of its first byte
  int depth = 0;          // blocks and brackets that are open around it; what opens and closes them counts as outside

  size_t end() const { return begin + text.size(); }
  bool is(std::string_view word) const { return text == word && kind != Kind::kText; }
};

/// The tokens of `source`, which they refer to. Knows no grammar: any text has tokens, also one that is not finished.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace sluice::repl
