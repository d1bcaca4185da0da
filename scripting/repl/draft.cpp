#include "scripting/repl/draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "scripting/repl/chunk.h"

namespace sluice::repl {

/// function flow.NAME(PARAMETERS) BODY end, as offsets in a text.
struct Draft::Function {
  std::string_view name;
  size_t begin = 0;
  size_t parameters_begin = 0;
  size_t parameters_end = 0;
  size_t body_end = 0;
  size_t end = 0;

  size_t body_begin() const { return parameters_end + 1; }
};

namespace {

/// Appends the lines of `entry`, indented unless that could change a text.
void append(Script& script, const Entry& entry, const std::string& indentation, const std::string& prefix = {}) {
  const auto contains = [&](const char* part) { return entry.text.find(part) != std::string::npos; };
  const bool has_long_text = contains("[[") || contains("[=") || contains("\\\n");
  SourceLocation origin = entry.where;
  std::string_view rest = entry.text;
  for (bool first = true; first || !rest.empty(); first = false) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (first) {
      script.text += indentation + prefix;
    } else if (!has_long_text && !line.empty() && !line.starts_with(indentation)) {
      script.text += indentation;
    }
    script.text += line;
    script.text += '\n';
    script.origins.push_back(origin);
    ++origin.line;
  }
}

/// True if `expression` is that name, whatever comments stand beside it.
bool is_name(std::string_view expression, std::string_view name) {
  const std::vector<Token> tokens = tokens_of(expression);
  return tokens.size() == 1 && tokens.front().is(name);
}

/// Whether one of `names` stands in `tokens`, but as a member of something.
bool mentions(const std::vector<Token>& tokens, const std::set<std::string>& names) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool is_member = i > 0 && (tokens[i - 1].is(".") || tokens[i - 1].is(":"));
    if (tokens[i].kind == Token::Kind::kName && !is_member && names.contains(std::string(tokens[i].text))) return true;
  }
  return false;
}

/// Names that statements use, but as members, and not those that they begin by assigning.
std::set<std::string> used_names(std::string_view statements) {
  const std::vector<Token> tokens = tokens_of(statements);
  std::set<std::string> names;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool is_member = i > 0 && (tokens[i - 1].is(".") || tokens[i - 1].is(":"));
    const bool is_target = tokens[i].depth == 0 && i + 1 < tokens.size() && tokens[i + 1].is("=");
    if (tokens[i].kind == Token::Kind::kName && !is_member && !is_target) names.emplace(tokens[i].text);
  }
  return names;
}

std::set<std::string> defined_names(std::string_view statements) {
  std::set<std::string> names;
  add_names(statements, names);
  return names;
}

bool have_one_in_common(const std::set<std::string>& one, const std::set<std::string>& other) {
  return std::any_of(one.begin(), one.end(), [&](const std::string& name) { return other.contains(name); });
}

bool has_word(const std::vector<Token>& tokens, std::string_view word) {
  return std::any_of(tokens.begin(), tokens.end(), [&](const Token& token) { return token.is(word); });
}

/// Whether lines call one of the functions that change what is kept.
bool calls(const Entry& entry, std::string_view function) { return has_word(tokens_of(entry.text), function); }

/// Whether all that lines do is to say who leaves: sluice.evict(...), or NAME:evict(...).
bool is_eviction(const Entry& entry) {
  const std::vector<Token> tokens = tokens_of(entry.text);
  const bool begins = begins_with(tokens, 1, {".", "evict", "("}) || begins_with(tokens, 1, {":", "evict", "("});
  if (!begins) return false;
  const auto end = std::find_if(tokens.begin() + 4, tokens.end(), [](const Token& token) { return token.depth == 0; });
  return end != tokens.end() && end + 1 == tokens.end();
}

void append_own(Script& script, const std::string& line) {
  script.text += line + "\n";
  script.origins.emplace_back();
}

}  // namespace

Draft::Draft() { top_.push_back({"local flow = sluice.flow { name = \"repl\", page = 16 }", {}}); }

std::optional<Draft::Function> Draft::find_function(const Entry& entry, size_t from) const {
  const std::vector<Token> tokens = tokens_of(entry.text);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].begin < from || tokens[i].depth != 0) continue;
    for (const std::string_view name : {cache_.name, index_.name, after_.name}) {
      const bool plain = begins_with(tokens, i, {"function", variable_, ".", name, "("});
      const bool assigned = begins_with(tokens, i, {variable_, ".", name, "=", "function", "("});
      if (!plain && !assigned) continue;
      const size_t open = i + (plain ? 4 : 5);
      const auto closes = [&](std::string_view word, int depth) {
        return [word, depth](const Token& token) { return token.depth == depth && token.is(word); };
      };
      const auto after = tokens.begin() + static_cast<std::ptrdiff_t>(open);
      const auto close = std::find_if(after, tokens.end(), closes(")", 1));
      const auto end = std::find_if(after, tokens.end(), closes("end", 0));
      if (close == tokens.end() || end == tokens.end()) return std::nullopt;
      return Function{name, tokens[i].begin, tokens[open].end(), close->begin, end->begin, end->end()};
    }
  }
  return std::nullopt;
}

bool Draft::add(const Entry& entry) {
  if (declares_flow(tokens_of(entry.text))) {
    Draft fresh;
    fresh.replace_all(entry);
    *this = std::move(fresh);
    return true;
  }
  size_t at = 0;
  while (const std::optional<Function> function = find_function(entry, at)) {
    add_lines(part_of(entry, at, function->begin));
    add_function(entry, *function);
    at = function->end;
  }
  add_lines(part_of(entry, at, entry.text.size()));
  return false;
}

void Draft::replace_all(const Entry& whole) {
  const Ending ending = split_result(whole);
  const Entry& lines = ending.before;
  const std::optional<Entry>& result = ending.result;
  top_.clear();
  const std::vector<Token> tokens = tokens_of(lines.text);
  const size_t declaration = find_declaration(tokens);
  if (declaration < tokens.size()) {
    variable_ = tokens[declaration].text;
    if (result && !is_name(result->text, variable_)) {
      throw FlowError(result->where, "the flow must end in return " + variable_, kFlowForm);
    }
  }
  size_t at = 0;
  const auto keep = [&](size_t end) {
    Entry rest = part_of(lines, at, end);
    if (!rest.text.empty()) top_.push_back(std::move(rest));
  };
  while (const std::optional<Function> function = find_function(lines, at)) {
    keep(function->begin);
    add_function(lines, *function);
    at = function->end;
  }
  keep(lines.text.size());
  if (declaration == tokens.size()) top_.push_back({"local flow = " + result.value().text, result.value().where});
}

void Draft::add_function(const Entry& whole, const Function& function) {
  Stage& target = stage(function.name);
  target.parameters = part_of(whole, function.parameters_begin, function.parameters_end).text;
  target.entries.clear();
  target.result.reset();
  target.whole = 1;
  const Entry body = part_of(whole, function.body_begin(), function.body_end);
  if (&target == &cache_) {
    for (Entry& entry : split_at_members(body)) target.entries.push_back(std::move(entry));
    return;
  }
  auto [lines, result] = split_result(body);
  if (&target == &after_) {
    after_names_ = defined_names(lines.text);
  } else {
    for (const std::string& name : defined_names(lines.text)) after_names_.erase(name);
  }
  if (!lines.text.empty()) target.entries.push_back(std::move(lines));
  target.result = std::move(result);
}

/// NAME of `c.NAME =` at `offset`, or "".
std::string Draft::member_assigned_at(const Entry& entry, size_t offset) const {
  const std::vector<Token> tokens = tokens_of(std::string_view(entry.text).substr(offset));
  const bool assigns = tokens.size() > 3 && tokens[0].is(cache_.parameters) && tokens[1].is(".") && tokens[3].is("=");
  return assigns ? std::string(tokens[2].text) : std::string();
}

/// A piece for every line that assigns a field, so that it can be replaced by itself.
std::vector<Entry> Draft::split_at_members(const Entry& entry) const {
  std::vector<Entry> pieces;
  size_t begin = 0;
  const auto end_at = [&](size_t end) {
    Entry piece = part_of(entry, begin, end);
    if (!piece.text.empty()) pieces.push_back(std::move(piece));
    begin = end;
  };
  for (const Token& token : tokens_of(entry.text)) {
    const size_t line = entry.text.rfind('\n', token.begin) + 1;  // npos + 1 is 0
    const bool is_first = entry.text.find_first_not_of(" \t", line) == token.begin;
    if (token.depth == 0 && is_first && !member_assigned_at(entry, token.begin).empty()) end_at(token.begin);
  }
  end_at(entry.text.size());
  return pieces;
}

void Draft::add_cache_line(const Entry& entry, const std::string& member) {
  for (Entry& known : cache_.entries) {
    if (member_assigned_at(known, 0) != member) continue;
    known = entry;
    return;
  }
  cache_.entries.push_back(entry);
}

void Draft::add_lines(const Entry& entry) {
  auto [lines, result] = split_result(entry);
  if (result && result->text != variable_) {  // return flow ends a flow that was typed
    if (follows_attention(*result)) {
      throw FlowError(result->where, "flow.index returns what is attended to, and this follows attention",
                      "keep it as a state, c.NAME:save(x), which the next step reads");
    }
    index_.result = std::move(result);
  }
  if (lines.text.empty()) return;
  if (const std::string member = member_assigned_at(lines, 0); !member.empty()) {
    for (const Entry& piece : split_at_members(lines)) add_cache_line(piece, member_assigned_at(piece, 0));
  } else if (is_function(tokens_of(lines.text))) {
    top_.push_back(std::move(lines));
  } else if (names_patterns(lines)) {
    add_pattern_line(lines);
  } else if (follows_attention(lines)) {
    add_after_line(lines);
  } else {
    for (const std::string& name : defined_names(lines.text)) after_names_.erase(name);
    index_.entries.push_back(std::move(lines));
  }
}

/// Who leaves is said once: a line that says it anew takes the place of one that did nothing else.
void Draft::add_after_line(const Entry& lines) {
  if (is_eviction(lines)) std::erase_if(after_.entries, is_eviction);
  after_names_.merge(defined_names(lines.text));
  after_.entries.push_back(lines);
}

std::string Draft::mass_name() const {
  const std::vector<Token> parameters = tokens_of(after_.parameters);  // with the commas between them
  return parameters.size() > 4 ? std::string(parameters[4].text) : std::string();
}

bool Draft::follows_attention(const Entry& entry) const {
  std::set<std::string> names = after_names_;
  names.insert(mass_name());
  if (have_one_in_common(used_names(entry.text), names) || calls(entry, "evict")) return true;
  const std::vector<Token> tokens = tokens_of(entry.text);
  const auto has_tail = [&](size_t i) { return begins_with(tokens, i, {"tail", "="}); };
  bool saves = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    saves = saves || tokens[i].is("save");
    if (saves && has_tail(i)) return true;
  }
  return false;
}

std::vector<Entry> Draft::lines_for_after(const std::optional<Entry>& result, bool saves) const {
  std::set<std::string> wanted;
  const auto want = [&](const Entry& entry) { wanted.merge(used_names(entry.text)); };
  std::set<std::string> own;
  for (const Entry& entry : after_.entries) {
    want(entry);
    add_names(entry.text, own);
  }
  if (result) want(*result);
  for (const std::string& name : own) wanted.erase(name);
  std::vector<Entry> lines;
  for (size_t i = index_.entries.size(); i-- > index_.whole;) {
    const Entry& entry = index_.entries[i];
    const bool is_saved = calls(entry, "save");
    const bool is_wanted = is_saved ? saves : have_one_in_common(defined_names(entry.text), wanted);
    if (!is_wanted) continue;
    want(entry);
    lines.push_back(entry);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

std::set<std::string> Draft::stage_names() const {
  std::set<std::string> names = {mass_name()};
  for (const Token& parameter : tokens_of(index_.parameters)) names.emplace(parameter.text);
  for (const Entry& known : index_.entries) {
    if (mentions(tokens_of(known.text), names)) add_names(known.text, names);
  }
  return names;
}

bool Draft::names_patterns(const Entry& entry) const {
  const auto has_patterns = [&](const std::vector<Token>& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (begins_with(words, i, {"sluice", ".", "pattern"}) || begins_with(words, i, {variable_, ".", "pattern"})) return true;
    }
    return false;
  };
  std::set<std::string> names;  // of patterns
  for (const Entry& known : top_) {
    const std::vector<Token> words = tokens_of(known.text);
    if (has_patterns(words) || mentions(words, names)) add_names(known.text, names);
  }
  names.erase(variable_);
  const std::vector<Token> tokens = tokens_of(entry.text);
  return (has_patterns(tokens) || mentions(tokens, names)) && !mentions(tokens, stage_names());
}

/// What the lines name that stands in the index stage, and needs nothing of it, goes before them: `n = 512`.
void Draft::add_pattern_line(const Entry& entry) {
  const std::vector<Token> tokens = tokens_of(entry.text);
  const bool assigns = begins_with(tokens, 0, {variable_, ".", "pattern", "="});
  if (assigns) drop_pattern();
  if (assigns && tokens.size() == 5 && tokens[4].is("nil")) return;  // there is none any more
  std::vector<Entry> needed = {entry};
  std::vector<Entry> staying;
  for (auto known = index_.entries.rbegin(); known != index_.entries.rend(); ++known) {
    std::set<std::string> defined;
    add_names(known->text, defined);
    const bool is_needed =
        std::any_of(needed.begin(), needed.end(), [&](const Entry& each) { return mentions(tokens_of(each.text), defined); });
    (is_needed ? needed : staying).push_back(*known);
  }
  index_.entries.assign(staying.rbegin(), staying.rend());
  top_.insert(top_.end(), needed.rbegin(), needed.rend());
}

size_t Draft::find_pattern(const std::vector<Token>& tokens) const {
  size_t i = 0;
  while (i < tokens.size() && (tokens[i].depth != 0 || !begins_with(tokens, i, {variable_, ".", "pattern", "="}))) ++i;
  return i;
}

bool Draft::assigns_pattern() const {
  return std::any_of(top_.begin(), top_.end(), [&](const Entry& entry) {
    const std::vector<Token> tokens = tokens_of(entry.text);
    const size_t value = find_pattern(tokens) + 4;
    return value < tokens.size() && !tokens[value].is("nil");
  });
}

bool Draft::evicts() const {
  return std::any_of(after_.entries.begin(), after_.entries.end(), [](const Entry& entry) { return calls(entry, "evict"); });
}

bool Draft::leaves_index_out() const {
  if (index_.result || index_.entries.empty() || !is_whole()) return false;
  // Values that were looked at are no part of a flow; what is saved is.
  const auto saves = [](const Entry& entry) { return calls(entry, "save"); };
  return evicts() || std::none_of(index_.entries.begin(), index_.entries.end(), saves);
}

/// Takes `flow.pattern = EXPRESSION` away, wherever it stands. Lines keep their numbers.
void Draft::drop_pattern() {
  for (Entry& entry : top_) {
    const std::vector<Token> tokens = tokens_of(entry.text);
    const size_t i = find_pattern(tokens);
    if (i == tokens.size()) continue;
    const size_t begin = tokens[i].begin;
    const size_t value = tokens[i + 3].end();
    size_t end = value;                   // of the longest expression
    constexpr size_t kMostTokens = 4000;  // of patterns that somebody writes
    for (size_t last = i + 4; last < std::min(tokens.size(), i + kMostTokens); ++last) {
      if (tokens[last].depth == 0 && (tokens[last].is("local") || tokens[last].is("function") || tokens[last].is("return")))
        break;
      const std::string text = entry.text.substr(value, tokens[last].end() - value);
      if (classify(text).kind == ChunkKind::kExpression) end = tokens[last].end();
    }
    const auto lines = std::count(entry.text.begin() + static_cast<std::ptrdiff_t>(begin),
                                  entry.text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    entry.text.replace(begin, end - begin, std::string(static_cast<size_t>(lines), '\n'));
  }
  std::erase_if(top_, [](const Entry& entry) { return entry.text.find_first_not_of(" \t\r\n;") == std::string::npos; });
}

void Draft::set_page(int tokens) {
  for (Entry& entry : top_) {
    const std::vector<Token> words = tokens_of(entry.text);
    for (size_t i = 0; i < words.size(); ++i) {
      if (!begins_with(words, i, {"sluice", ".", "flow"})) continue;
      const size_t open = i + 3 < words.size() && words[i + 3].is("(") ? i + 4 : i + 3;
      if (!begins_with(words, open, {"{"})) break;
      const int inside = words[open].depth + 1;
      for (size_t j = open + 1; j < words.size() && words[j].depth >= inside; ++j) {
        if (words[j].depth != inside || !begins_with(words, j, {"page", "="})) continue;
        size_t last = j + 1;  // of the value
        while (words[last + 1].depth > inside ||
               (words[last + 1].depth == inside && !words[last + 1].is(",") && !words[last + 1].is(";"))) {
          ++last;
        }
        entry.text.replace(words[j + 1].end(), words[last].end() - words[j + 1].end(), fmt::format(" {}", tokens));
        return;
      }
      entry.text.insert(words[open].end(), fmt::format(" page = {},", tokens));
      return;
    }
  }
  throw InputError("the flow's declaration has no table to write the page into",
                   "it is written sluice.flow { name = ..., page = 16 }");
}

void Draft::append_function(Script& script, const Stage& stage, const std::vector<Entry>& entries,
                            const std::optional<Entry>& result) const {
  if (entries.empty() && !result) return;
  append_own(script, fmt::format("\nfunction {}.{}({})", variable_, stage.name, stage.parameters));
  script.origins.emplace_back();
  for (const Entry& entry : entries) append(script, entry, "  ");
  if (result) append(script, *result, "  ", "return ");
  append_own(script, "end");
}

Script Draft::build(const std::optional<Entry>& of_index, const std::optional<Entry>& of_after) const {
  Script script;
  for (const Entry& entry : top_) append(script, entry, "");
  append_function(script, cache_, cache_.entries, std::nullopt);
  const bool saves_after = evicts() && !index_.result;
  if (of_index || !leaves_index_out()) {
    std::vector<Entry> entries = index_.entries;
    if (saves_after) std::erase_if(entries, [](const Entry& entry) { return calls(entry, "save"); });
    append_function(script, index_, entries, of_index);
  }
  std::vector<Entry> entries;
  if (!after_.entries.empty() || of_after) entries = lines_for_after(of_after, saves_after);
  entries.insert(entries.end(), after_.entries.begin(), after_.entries.end());
  append_function(script, after_, entries, of_after);
  append_own(script, fmt::format("\nreturn {}", variable_));
  script.origins.emplace_back();
  return script;
}

Script Draft::script() const { return build(index_.result, after_.result); }

Script Draft::script_returning(const Entry& expression) const {
  if (!follows_attention(expression)) return build(expression, after_.result);
  if (is_eviction(expression) && evicts()) {  // it would take the place of another
    Draft without = *this;
    if (std::erase_if(without.after_.entries, is_eviction) > 0) return without.script_returning(expression);
  }
  Script script = build(index_.result, expression);
  script.asked = sluice::Stage::kAfter;
  return script;
}

std::vector<std::string> Draft::names() const {
  std::set<std::string> names;
  for (const std::vector<Entry>* entries : {&top_, &index_.entries, &after_.entries}) {
    for (const Entry& entry : *entries) add_names(entry.text, names);
  }
  for (const Token& parameter : tokens_of(index_.parameters)) {
    if (parameter.kind == Token::Kind::kName) names.emplace(parameter.text);
  }
  names.insert(mass_name());
  names.erase("");
  names.erase(variable_);
  return {names.begin(), names.end()};
}

std::vector<std::string> Draft::members() const {
  std::set<std::string> members = {"k", "v"};
  for (const Entry& entry : cache_.entries) {
    const std::vector<Token> tokens = tokens_of(entry.text);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (const std::string member = member_assigned_at(entry, tokens[i].begin); !member.empty()) members.insert(member);
    }
  }
  return {members.begin(), members.end()};
}

}  // namespace sluice::repl
