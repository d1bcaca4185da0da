#include "host/text/jinja/token_stream.h"

#include <fmt/format.h>

#include "host/text/jinja/run.h"
#include "scripting/base/printable_text.h"

namespace sluice::jinja {
namespace {

std::string shown(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kBlockEnd:
      return "%}";
    case Token::Kind::kVariableEnd:
      return "}}";
    case Token::Kind::kEnd:
      return "the end of the template";
    default:
      return fmt::format("\"{}\"", printable(token.text.substr(0, 40)));
  }
}

}  // namespace

Token TokenStream::take() {
  if (is(Token::Kind::kEnd)) return current();
  return std::move(tokens_[at_++]);
}

bool TokenStream::is_name(std::string_view name, size_t ahead) const {
  return current(ahead).kind == Token::Kind::kName && current(ahead).text == name;
}

bool TokenStream::is_operator(std::string_view text, size_t ahead) const {
  return current(ahead).kind == Token::Kind::kOperator && current(ahead).text == text;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  ++at_;
  return true;
}

bool TokenStream::skip_operator(std::string_view text) {
  if (!is_operator(text)) return false;
  ++at_;
  return true;
}

void TokenStream::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_wanting(fmt::format("\"{}\"", name));
}

void TokenStream::expect_operator(std::string_view text) {
  if (!skip_operator(text)) fail_wanting(fmt::format("\"{}\"", text));
}

std::string TokenStream::expect_any_name(const char* what) {
  if (!is(Token::Kind::kName)) fail_wanting(what);
  return take().text;
}

void TokenStream::fail_wanting(std::string_view what) const { fail(fmt::format("{} is wanted, not {}", what, shown(current()))); }

void TokenStream::fail(const std::string& message) const { throw Fault(current().line, message); }

}  // namespace sluice::jinja
