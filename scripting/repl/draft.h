#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "scripting/graph/graph.h"
#include "scripting/repl/statements.h"

namespace sluice::repl {

/// How a flow must be written for a draft to take it apart, for hints.
inline constexpr const char* kFlowForm =
    "write: local flow = sluice.flow{...}, then function flow.cache(c) ... end, function flow.index(q, c) ... return ... end, "
    "return flow";

/// A flow as a script, with the origin of each of its lines; those that the draft added have line 0.
struct Script {
  std::string text;
  std::vector<SourceLocation> origins;
  sluice::Stage asked = sluice::Stage::kIndex;  // whose result is looked at
};

/// A flow that grows line by line. It is nothing but text: what is typed takes its place in the script of a flow, and so means
/// what it would mean there.
///
///   local flow = sluice.flow { name = "repl", page = 16 }    top: the declaration, and functions
///   flow.pattern = ...                                       lines that name patterns, and nothing of a stage
///   function flow.cache(c)  ...  end                         lines that begin with c.NAME =
///   function flow.index(q, c)  ...  return RESULT  end       all others
///   function flow.after(q, c, mass)  ...  end                lines that name what attention gave or what such lines define, that
///                                                            say who leaves, or save a summary behind a tail
///   return flow
///
/// Lines of the index stage that those of the after stage need stand there, too. Where a flow says who leaves and selects
/// nothing, what lines save is saved in the after stage: there is no other.
class Draft {
 public:
  /// An empty flow: it selects nothing.
  Draft();

  /// Adds complete statements. `function flow.cache` and its kin replace what stood there, `return` the selection, an
  /// assignment to a field that one line has assigned takes the place of that line, and a text with sluice.flow{...} is a new
  /// flow that replaces everything: true is returned then. Throws FlowError if such a text is not built as the picture above.
  bool add(const Entry& entry);
  /// Changes the declaration. Throws InputError if it is not written as a table.
  void set_page(int tokens);

  /// The whole flow.
  Script script() const;
  /// The flow whose index stage ends in `return EXPRESSION` instead, or its after stage, where the expression is one of that.
  Script script_returning(const Entry& expression) const;
  /// What stands after `return` in the index stage.
  const std::optional<Entry>& selection() const { return index_.result; }

  /// Names that lines, functions and parameters define, and fields and states of c; sorted, each once.
  std::vector<std::string> names() const;
  std::vector<std::string> members() const;
  /// Whether it has a line `flow.pattern = ...`.
  bool assigns_pattern() const;
  /// Whether a line of the after stage says who leaves.
  bool evicts() const;
  /// Whether it says what is attended to: by a selection, by a pattern, or by who leaves.
  bool is_whole() const { return index_.result || assigns_pattern() || evicts(); }
  /// Whether lines of the index stage are no part of the flow: it is whole without them, and they are values that somebody
  /// looked at.
  bool leaves_index_out() const;

 private:
  struct Stage {
    std::string_view name;
    std::string parameters;
    std::vector<Entry> entries;
    std::optional<Entry> result;  // an expression
    size_t whole = 0;             // entries that are a function's body, and come first
  };
  struct Function;

  void add_lines(const Entry& entry);
  void add_pattern_line(const Entry& entry);
  void drop_pattern();
  /// The place of the word that `flow.pattern = ...` begins with; none: as many as there are.
  size_t find_pattern(const std::vector<Token>& tokens) const;
  void add_cache_line(const Entry& entry, const std::string& member);
  void add_function(const Entry& whole, const Function& function);
  void replace_all(const Entry& whole);
  std::optional<Function> find_function(const Entry& entry, size_t from) const;
  Stage& stage(std::string_view name) { return name == cache_.name ? cache_ : name == index_.name ? index_ : after_; }
  /// What flow.after calls what attention gave.
  std::string mass_name() const;
  /// Whether lines belong into the after stage.
  bool follows_attention(const Entry& entry) const;
  void add_after_line(const Entry& lines);
  /// Lines of the index stage that these need, which stand in the after stage with `result`; and with `saves` those that save.
  std::vector<Entry> lines_for_after(const std::optional<Entry>& result, bool saves) const;
  /// Names that only the index and after stages have: their parameters, and what follows from these.
  std::set<std::string> stage_names() const;
  /// Whether lines name patterns, or what such lines define, and nothing of the stages.
  bool names_patterns(const Entry& entry) const;
  std::string member_assigned_at(const Entry& entry, size_t offset) const;
  std::vector<Entry> split_at_members(const Entry& entry) const;
  Script build(const std::optional<Entry>& of_index, const std::optional<Entry>& of_after) const;
  void append_function(Script& script, const Stage& stage, const std::vector<Entry>& entries,
                       const std::optional<Entry>& result) const;

  std::string variable_ = "flow";
  std::vector<Entry> top_;
  Stage cache_{"cache", "c", {}, std::nullopt};
  Stage index_{"index", "q, c", {}, std::nullopt};
  Stage after_{"after", "q, c, mass", {}, std::nullopt};
  std::set<std::string> after_names_;  // whose last definition is a line of the after stage
};

}  // namespace sluice::repl
