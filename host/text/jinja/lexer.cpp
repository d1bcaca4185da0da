#include "host/text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>

#include "host/text/jinja/characters.h"
#include "host/text/jinja/quoted_text.h"
#include "host/text/jinja/run.h"
#include "scripting/base/printable_text.h"
#include "scripting/base/unicode.h"

namespace sluice::jinja {
namespace {

using Kind = Token::Kind;

/// Line breaks as \n, and none at the end.
std::string normalized(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      text += '\n';
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> tokens() {
    while (at_ < source_.size()) {
      const size_t tag = find_tag();
      if (tag == std::string::npos) {
        add(Kind::kData, rest());
        at_ = source_.size();
        break;
      }
      read_data(tag);
      read_tag();
    }
    add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return source_.substr(at_); }

  [[noreturn]] void fail(const std::string& message) const { throw Fault(line_, message); }

  void add(Kind kind, std::string_view text) {
    if (kind == Kind::kData && text.empty()) return;
    tokens_.push_back({kind, std::string(text), line_});
  }

  void advance(size_t bytes) {
    const auto* begin = source_.data() + at_;
    line_ += static_cast<int>(std::count(begin, begin + bytes, '\n'));
    at_ += bytes;
  }

  void skip_space() {
    while (at_ < source_.size()) {
      const size_t length = space_length(source_, at_);
      if (length == 0) return;
      advance(length);
    }
  }

  /// Where the next {{, {% or {# is.
  size_t find_tag() const {
    for (size_t at = at_; (at = source_.find('{', at)) != std::string::npos && at + 1 < source_.size(); ++at) {
      if (std::string_view("{%#").find(source_[at + 1]) != std::string_view::npos) return at;
    }
    return std::string::npos;
  }

  /// Takes the text before the tag, less the white space that the tag takes away.
  void read_data(size_t tag) {
    std::string_view data = source_.substr(at_, tag - at_);
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (sign == '-') {
      data = strip(data, false, true);
    } else if (sign != '+' && source_[tag + 1] != '{') {
      const size_t line = data.rfind('\n') + 1;  // 0 without one
      const bool begins_line = line > 0 || at_line_begin_;
      if (begins_line && strip(data.substr(line), true, false).empty()) data = data.substr(0, line);
    }
    add(Kind::kData, data);
    advance(tag - at_);
  }

  void read_tag() {
    const char kind = source_[at_ + 1];
    if (kind == '#') return read_comment();
    const bool is_block = kind == '%';
    advance(2);
    if (rest().starts_with('-') || (is_block && rest().starts_with('+'))) advance(1);
    if (is_block && read_raw()) return;
    add(is_block ? Kind::kBlockBegin : Kind::kVariableBegin, "");
    read_code(is_block);
  }

  /// What ends a tag: spaces that go with it, and for blocks and comments the line break.
  void end_tag(char sign, bool takes_line_break) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && takes_line_break && rest().starts_with('\n')) {
      advance(1);
    }
    at_line_begin_ = source_[at_ - 1] == '\n';
  }

  void read_comment() {
    const bool has_sign = at_ + 2 < source_.size() && (source_[at_ + 2] == '-' || source_[at_ + 2] == '+');
    const size_t begin = at_ + (has_sign ? 3 : 2);
    const size_t end = source_.find("#}", begin);
    if (end == std::string::npos) fail("a comment has no end: #} is missing");
    const char sign = end > begin ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    end_tag(sign, true);
  }

  /// {% raw %}: text up to {% endraw %} as it stands.
  bool read_raw() {
    size_t at = at_;
    const auto skip = [&] {
      while (at < source_.size() && space_length(source_, at) > 0) at += space_length(source_, at);
    };
    const auto takes = [&](std::string_view wanted) {
      if (!source_.substr(at).starts_with(wanted)) return false;
      at += wanted.size();
      return true;
    };
    skip();
    if (!takes("raw")) return false;
    skip();
    const bool trims = takes("-");
    if (!takes("%}")) return false;
    advance(at - at_);
    if (trims) skip_space();
    for (size_t tag = at_; (tag = source_.find("{%", tag)) != std::string::npos; ++tag) {
      at = tag + 2;
      const bool trims_before = takes("-");
      const bool keeps_before = !trims_before && takes("+");
      skip();
      if (!takes("endraw")) continue;
      skip();
      const char sign = takes("-") ? '-' : takes("+") ? '+' : '\0';
      if (!takes("%}")) continue;
      std::string_view data = source_.substr(at_, tag - at_);
      if (trims_before) {
        data = strip(data, false, true);
      } else if (!keeps_before) {
        const size_t line = data.rfind('\n') + 1;
        if ((line > 0 || source_[at_ - 1] == '\n') && strip(data.substr(line), true, false).empty()) data = data.substr(0, line);
      }
      add(Kind::kData, data);
      advance(at - at_);
      end_tag(sign, true);
      return true;
    }
    fail("{% raw %} has no {% endraw %}");
  }

  /// Tokens up to %} or }}.
  void read_code(bool is_block) {
    const std::string_view end = is_block ? "%}" : "}}";
    std::string open;  // brackets
    while (true) {
      skip_space();
      if (at_ == source_.size()) fail(fmt::format("a tag has no end: {} is missing", end));
      const bool has_sign = rest().starts_with('-') || (is_block && rest().starts_with('+'));
      if (open.empty() && source_.substr(at_ + (has_sign ? 1 : 0)).starts_with(end)) {
        const char sign = has_sign ? source_[at_] : '\0';
        add(is_block ? Kind::kBlockEnd : Kind::kVariableEnd, "");
        advance(end.size() + (has_sign ? 1 : 0));
        return end_tag(sign, is_block);
      }
      read_token(open);
    }
  }

  void read_token(std::string& open) {
    const char first = source_[at_];
    if (is_digit(first)) return read_number();
    if (first == '\'' || first == '"') return read_text();
    if (const size_t length = name_length(); length > 0) {
      add(Kind::kName, rest().substr(0, length));
      return advance(length);
    }
    read_operator(open);
  }

  /// Letters, digits and _; not only ASCII.
  size_t name_length() const {
    size_t end = at_;
    while (end < source_.size()) {
      const char32_t character = character_at(source_, end);
      const bool belongs = character == '_' || is_letter(character) || (end > at_ && is_decimal(character));
      if (!belongs) break;
      end += character_length(source_, end);
    }
    return end - at_;
  }

  void read_number() {
    std::string digits;
    size_t at = at_;
    const auto take_digits = [&] {
      while (at < source_.size() &&
             (is_digit(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1])))) {
        if (source_[at] != '_') digits += source_[at];
        ++at;
      }
    };
    const auto digit_at = [&](size_t place) { return place < source_.size() && is_digit(source_[place]); };
    take_digits();
    Kind kind = Kind::kInteger;
    const bool is_place = !tokens_.empty() && tokens_.back().kind == Kind::kOperator && tokens_.back().text == ".";  // x.0.1
    if (!is_place && at < source_.size() && source_[at] == '.' && digit_at(at + 1)) {
      kind = Kind::kFloat;
      digits += source_[at++];
      take_digits();
    }
    if (!is_place && at < source_.size() && (source_[at] == 'e' || source_[at] == 'E')) {
      const size_t sign = at + 1 < source_.size() && (source_[at + 1] == '+' || source_[at + 1] == '-') ? 1 : 0;
      if (digit_at(at + 1 + sign)) {
        kind = Kind::kFloat;
        digits += source_.substr(at, 1 + sign);
        at += 1 + sign;
        take_digits();
      }
    }
    add(kind, digits);
    advance(at - at_);
  }

  void read_text() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a text has no end: a quotation mark is missing");
    add(Kind::kText, without_escapes(source_.substr(at_ + 1, end - at_ - 1), line_));
    advance(end + 1 - at_);
  }

  void read_operator(std::string& open) {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[",
                                                      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](std::string_view text) { return rest().starts_with(text); });
    if (found == std::end(kOperators)) {
      fail(fmt::format("{} means nothing here", printable(rest().substr(0, character_length(source_, at_)))));
    }
    const char sign = found->front();
    if (sign == '(' || sign == '[' || sign == '{') {
      open += sign;
    } else if (sign == ')' || sign == ']' || sign == '}') {
      const char wanted = sign == ')' ? '(' : sign == ']' ? '[' : '{';
      if (open.empty() || open.back() != wanted) fail(fmt::format("{} closes nothing", sign));
      open.pop_back();
    }
    add(Kind::kOperator, *found);
    advance(found->size());
  }

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_begin_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  const std::string text = normalized(source);
  return Lexer(text).tokens();
}

}  // namespace sluice::jinja
