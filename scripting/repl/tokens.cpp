#include "scripting/repl/tokens.h"

#include <algorithm>
#include <array>
#include <string>

namespace sluice::repl {

namespace {

constexpr std::array<std::string_view, 22> kKeywords = {"and",      "break",  "do",   "else", "elseif", "end",  "false", "for",
                                                        "function", "goto",   "if",   "in",   "local",  "nil",  "not",   "or",
                                                        "repeat",   "return", "then", "true", "until",  "while"};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (skip_blank()) {
      const size_t begin = at_;
      const Token::Kind kind = step();
      add(kind, begin);
    }
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  /// Past white space and comments; false at the end.
  bool skip_blank() {
    while (at_ < source_.size()) {
      if (source_.substr(at_, 2) == "--") {
        at_ += 2;
        if (!skip_long_bracket()) at_ = std::min(source_.find('\n', at_), source_.size());
      } else if (std::string_view(" \t\r\n\v\f").find(peek()) != std::string_view::npos) {
        ++at_;
      } else {
        return true;
      }
    }
    return false;
  }

  /// Past [[...]] or [=[...]=], if it begins here.
  bool skip_long_bracket() {
    size_t level = 1;
    while (peek(level) == '=') ++level;
    if (peek() != '[' || peek(level) != '[') return false;
    const std::string close = "]" + std::string(level - 1, '=') + "]";
    const size_t end = source_.find(close, at_ + level + 1);
    at_ = end == std::string_view::npos ? source_.size() : end + close.size();
    return true;
  }

  void skip_quoted() {
    const char quote = source_[at_++];
    while (at_ < source_.size() && peek() != quote && peek() != '\n') at_ += peek() == '\\' ? 2 : 1;
    at_ = std::min(at_ + 1, source_.size());
  }

  Token::Kind step() {
    if (is_letter(peek())) {
      const size_t begin = at_;
      while (is_letter(peek()) || is_digit(peek())) ++at_;
      const std::string_view word = source_.substr(begin, at_ - begin);
      return std::find(kKeywords.begin(), kKeywords.end(), word) == kKeywords.end() ? Token::Kind::kName : Token::Kind::kKeyword;
    }
    if (is_digit(peek()) || (peek() == '.' && is_digit(peek(1)))) {
      while (is_letter(peek()) || is_digit(peek()) || peek() == '.' || (is_sign(peek()) && is_exponent(source_[at_ - 1]))) ++at_;
      return Token::Kind::kNumber;
    }
    if (peek() == '"' || peek() == '\'') {
      skip_quoted();
      return Token::Kind::kText;
    }
    if (skip_long_bracket()) return Token::Kind::kText;
    const bool doubled = std::string_view("=~<>").find(peek()) != std::string_view::npos && peek(1) == '=';
    at_ += doubled ? 2 : 1;
    return Token::Kind::kSymbol;
  }

  static bool is_sign(char c) { return c == '+' || c == '-'; }
  static bool is_exponent(char c) { return c == 'e' || c == 'E' || c == 'p' || c == 'P'; }

  void add(Token::Kind kind, size_t begin) {
    Token token{kind, source_.substr(begin, at_ - begin), begin, 0};
    const auto is_one_of = [&](std::initializer_list<std::string_view> words) {
      return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return token.is(word); });
    };
    // `while` and `for` open their block with `do`.
    if (is_one_of({"end", "until", ")", "]", "}"})) depth_ = std::max(depth_ - 1, 0);
    token.depth = depth_;
    if (is_one_of({"function", "if", "do", "repeat", "(", "[", "{"})) ++depth_;
    tokens_.push_back(token);
  }

  std::string_view source_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).run(); }

}  // namespace sluice::repl
