#include "scripting/repl/completion.h"

#include <algorithm>

#include "scripting/graph/types.h"
#include "scripting/lua/functions.h"
#include "scripting/repl/tokens.h"

namespace sluice::repl {

namespace {

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

/// True if a text that the end of `line` is in has begun: an odd number of quotes.
bool is_inside_quotes(std::string_view line) {
  const std::vector<Token> tokens = tokens_of(line);
  if (tokens.empty() || tokens.back().kind != Token::Kind::kText) return false;
  const std::string_view text = tokens.back().text;
  return tokens.back().end() == line.size() && (text.size() == 1 || text.back() != text.front());
}

std::vector<std::string> axes() {
  std::vector<std::string> names;
  for (const Axis axis : {Axis::kPage, Axis::kToken, Axis::kDim, Axis::kHead, Axis::kSub}) names.emplace_back(name_of(axis));
  return names;
}

std::vector<std::string> functions_of_sluice() {
  std::vector<std::string> names = function_names(false);
  names.emplace_back("page_size");
  return names;
}

std::vector<std::string> words(const Vocabulary& vocabulary) {
  std::vector<std::string> all = vocabulary.names;
  for (const char* word : {"sluice", "function", "local", "return", "math", "for", "end", "if", "then"}) all.emplace_back(word);
  return all;
}

/// The word before the "." or ":" at the end of `before`.
std::string_view owner(std::string_view before) {
  before.remove_suffix(1);
  size_t begin = before.size();
  while (begin > 0 && is_word(before[begin - 1])) --begin;
  return before.substr(begin);
}

std::vector<std::string> all_for(std::string_view before, const Vocabulary& vocabulary) {
  if (is_inside_quotes(before)) return axes();
  if (before.ends_with(":")) return function_names(true);
  if (!before.ends_with(".")) return words(vocabulary);
  if (owner(before) == "sluice") return functions_of_sluice();
  return owner(before) == "c" ? vocabulary.members : std::vector<std::string>();
}

}  // namespace

Completion complete(std::string_view line, const Vocabulary& vocabulary) {
  Completion result;
  result.begin = line.size();
  while (result.begin > 0 && is_word(line[result.begin - 1])) --result.begin;
  std::string_view before = line.substr(0, result.begin);
  const bool is_command = before.find_first_not_of(' ') == before.size() - 1 && before.ends_with(":");
  if (is_command) before = line.substr(0, --result.begin);
  const std::string_view word = line.substr(result.begin);
  const std::vector<std::string> all = is_command ? vocabulary.commands : all_for(before, vocabulary);
  for (const std::string& candidate : all) {
    if (candidate.starts_with(word)) result.candidates.push_back(candidate);
  }
  std::sort(result.candidates.begin(), result.candidates.end());
  result.candidates.erase(std::unique(result.candidates.begin(), result.candidates.end()), result.candidates.end());
  return result;
}

std::string common_prefix(const std::vector<std::string>& candidates) {
  if (candidates.empty()) return {};
  std::string prefix = candidates.front();
  for (const std::string& candidate : candidates) {
    const auto differs = std::mismatch(prefix.begin(), prefix.end(), candidate.begin(), candidate.end());
    prefix.erase(differs.first, prefix.end());
  }
  return prefix;
}

}  // namespace sluice::repl
