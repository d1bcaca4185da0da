// Methods that cut a text in pieces.

#include <algorithm>
#include <iterator>

#include "host/text/jinja/arguments.h"
#include "host/text/jinja/characters.h"
#include "host/text/jinja/text_methods.h"

namespace sluice::jinja {
namespace {

std::string_view text(const Value& owner) { return std::get<std::string_view>(owner); }

/// The same from the end.
std::vector<Value> pieces_from_end(Run& run, std::string_view text, std::string_view separator, int64_t most) {
  std::vector<Value> all = pieces_of(run, text, separator, -1);
  if (most < 0 || static_cast<size_t>(most) >= all.size()) return all;
  const auto cut = all.end() - most;
  const std::string_view head(
      text.data(), std::get<std::string_view>(*(cut - 1)).data() - text.data() + std::get<std::string_view>(*(cut - 1)).size());
  std::vector<Value> pieces = {head};
  pieces.insert(pieces.end(), cut, all.end());
  return pieces;
}

/// Words between white space, as Python's split() without a separator.
std::vector<Value> words_of(Run& run, std::string_view text, int64_t most) {
  std::vector<Value> words;
  for (text = strip(text, true, false); !text.empty(); text = strip(text, true, false)) {
    run.charge(sizeof(Value));
    if (most-- == 0) {
      words.emplace_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size() && space_length(text, end) == 0) end += character_length(text, end);
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

Value split(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "split", arguments, {"sep", "maxsplit"});
  run.walk(text(owner).size());
  const int64_t most = given.integer(1, -1);
  if (!given.has(0)) return run.keep(words_of(run, text(owner), most));
  if (given.text(0).empty()) run.fail("split: the separator is empty");
  return run.keep(pieces_of(run, text(owner), given.text(0), most));
}

Value rsplit(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "rsplit", arguments, {"sep", "maxsplit"});
  run.walk(text(owner).size());
  const int64_t most = given.integer(1, -1);
  if (!given.has(0)) {
    if (most >= 0) run.fail("rsplit: \"maxsplit\" needs a separator here");
    return run.keep(words_of(run, text(owner), -1));
  }
  if (given.text(0).empty()) run.fail("rsplit: the separator is empty");
  return run.keep(pieces_from_end(run, text(owner), given.text(0), most));
}

Value splitlines(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "splitlines", arguments, {"keepends"});
  const bool keep_ends = given.boolean(0, false);
  std::string_view rest = text(owner);
  run.walk(rest.size());
  std::vector<Value> lines;
  while (!rest.empty()) {
    size_t end = 0;
    size_t length = 0;  // of the line break
    for (; end < rest.size() && length == 0; end += length == 0 ? character_length(rest, end) : 0) {
      const char32_t character = character_at(rest, end);
      const bool breaks = (character >= '\n' && character <= '\r') || (character >= 0x1c && character <= 0x1e) ||
                          character == 0x85 || character == 0x2028 || character == 0x2029;
      if (breaks) length = rest.substr(end).starts_with("\r\n") ? 2 : character_length(rest, end);
    }
    run.charge(sizeof(Value));
    lines.emplace_back(rest.substr(0, keep_ends ? end + length : end));
    rest.remove_prefix(end + length);
  }
  return run.keep(std::move(lines));
}

Value partition(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "partition", arguments, {"sep"}, 1);
  run.walk(text(owner).size());
  const std::string_view separator = given.text(0);
  if (separator.empty()) run.fail("partition: the separator is empty");
  const size_t at = find(text(owner), separator);
  if (at == std::string::npos) return run.keep({owner, std::string_view(), std::string_view()}, List::Kind::kTuple);
  return run.keep({text(owner).substr(0, at), separator, text(owner).substr(at + separator.size())}, List::Kind::kTuple);
}

}  // namespace

MethodBody find_splitting_method(std::string_view name) {
  if (name == "split") return split;
  if (name == "rsplit") return rsplit;
  if (name == "splitlines") return splitlines;
  return name == "partition" ? partition : nullptr;
}

std::vector<Value> pieces_of(Run& run, std::string_view text, std::string_view separator, int64_t most) {
  std::vector<Value> pieces;
  for (; most != 0; --most) {
    const size_t at = find(text, separator);
    if (at == std::string::npos) break;
    run.charge(sizeof(Value));
    pieces.emplace_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  pieces.emplace_back(text);
  return pieces;
}

}  // namespace sluice::jinja
