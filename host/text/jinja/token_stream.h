#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "host/text/jinja/lexer.h"

namespace sluice::jinja {

/// Goes through tokens. Throws Fault with the line of one that is not as wanted.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  /// The token after next is `ahead` 1.
  const Token& current(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token take();
  bool is(Token::Kind kind) const { return current().kind == kind; }
  bool is_name(std::string_view name, size_t ahead = 0) const;
  bool is_operator(std::string_view text, size_t ahead = 0) const;
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view text);
  void expect_name(std::string_view name);
  void expect_operator(std::string_view text);
  std::string expect_any_name(const char* what);
  /// "WHAT is wanted, not ...".
  [[noreturn]] void fail_wanting(std::string_view what) const;
  [[noreturn]] void fail(const std::string& message) const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace sluice::jinja
