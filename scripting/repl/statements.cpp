#include "scripting/repl/statements.h"

#include <algorithm>

namespace sluice::repl {

namespace {

constexpr std::string_view kBlank = " \t\r\n;";

/// `text` without white space around it; `where` follows.
Entry trimmed(std::string_view text, SourceLocation where) {
  const size_t begin = std::min(text.find_first_not_of(kBlank), text.size());
  where.line += static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(begin), '\n'));
  text.remove_prefix(begin);
  text = text.substr(0, text.find_last_not_of(kBlank) + 1);
  return {std::string(text), std::move(where)};
}

/// The `return` that stands outside all blocks of `tokens`; their count if there is none.
size_t find_return(const std::vector<Token>& tokens) {
  const auto is_return = [](const Token& token) { return token.depth == 0 && token.is("return"); };
  return static_cast<size_t>(std::find_if(tokens.begin(), tokens.end(), is_return) - tokens.begin());
}

/// Behind "a, b, c" that begins at `at`.
size_t end_of_names(const std::vector<Token>& tokens, size_t at) {
  ++at;
  while (at + 1 < tokens.size() && tokens[at].is(",") && tokens[at + 1].kind == Token::Kind::kName) at += 2;
  return at;
}

}  // namespace

Entry part_of(const Entry& entry, size_t begin, size_t end) {
  SourceLocation where = entry.where;
  where.line += static_cast<int>(std::count(entry.text.begin(), entry.text.begin() + static_cast<std::ptrdiff_t>(begin), '\n'));
  return trimmed(std::string_view(entry.text).substr(begin, end - begin), std::move(where));
}

bool begins_with(const std::vector<Token>& tokens, size_t at, std::initializer_list<std::string_view> words) {
  if (at + words.size() > tokens.size()) return false;
  return std::equal(words.begin(), words.end(), tokens.begin() + static_cast<std::ptrdiff_t>(at),
                    [](std::string_view word, const Token& token) { return token.is(word); });
}

Ending split_result(const Entry& entry) {
  const std::vector<Token> tokens = tokens_of(entry.text);
  const size_t at = find_return(tokens);
  if (at == tokens.size()) return {part_of(entry, 0, entry.text.size()), std::nullopt};
  return {part_of(entry, 0, tokens[at].begin), part_of(entry, tokens[at].end(), entry.text.size())};
}

size_t find_declaration(const std::vector<Token>& tokens) {
  for (size_t i = 0; i + 4 < tokens.size(); ++i) {
    const bool named = tokens[i].kind == Token::Kind::kName && tokens[i].depth == 0;
    if (named && begins_with(tokens, i + 1, {"=", "sluice", ".", "flow"})) return i;
  }
  return tokens.size();
}

bool declares_flow(const std::vector<Token>& tokens) {
  if (find_declaration(tokens) < tokens.size()) return true;
  const size_t at = find_return(tokens);
  return begins_with(tokens, at + 1, {"sluice", ".", "flow"});
}

bool is_function(const std::vector<Token>& tokens) {
  return begins_with(tokens, 0, {"function"}) || begins_with(tokens, 0, {"local", "function"});
}

void add_names(std::string_view statements, std::set<std::string>& names) {
  const std::vector<Token> tokens = tokens_of(statements);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].kind != Token::Kind::kName || tokens[i].depth != (i > 0 && tokens[i - 1].is("function") ? 1 : 0)) continue;
    const bool declared = i > 0 && (tokens[i - 1].is("local") || tokens[i - 1].is("function"));
    const size_t end = end_of_names(tokens, i);
    const bool assigned = end < tokens.size() && tokens[end].is("=") && !(i > 0 && tokens[i - 1].is("."));
    if (declared || assigned) names.emplace(tokens[i].text);
  }
}

bool is_whole(std::string_view text) {
  const std::vector<Token> tokens = tokens_of(text);
  return find_return(tokens) < tokens.size();
}

std::string assigned_name(std::string_view statements) {
  const std::vector<Token> tokens = tokens_of(statements);
  const size_t at = begins_with(tokens, 0, {"local"}) ? 1 : 0;
  const bool assigns = at + 1 < tokens.size() && tokens[at].kind == Token::Kind::kName && tokens[at + 1].is("=");
  return assigns ? std::string(tokens[at].text) : std::string();
}

std::string bare_name(std::string_view expression) {
  const std::vector<Token> tokens = tokens_of(expression);
  const bool bare = tokens.size() == 1 && tokens.front().kind == Token::Kind::kName;
  return bare ? std::string(tokens.front().text) : std::string();
}

}  // namespace sluice::repl
