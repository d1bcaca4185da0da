#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "scripting/base/error.h"
#include "scripting/repl/tokens.h"

namespace sluice::repl {

// What can be said of statements by their words alone.

/// A piece of a flow as it was written, and where: "input 3" or a file, from a 1-based line on.
struct Entry {
  std::string text;
  SourceLocation where;
};

/// The part [begin, end) of an entry, without white space and semicolons around it.
Entry part_of(const Entry& entry, size_t begin, size_t end);

/// True if `words` stand in `tokens` from `at` on.
bool begins_with(const std::vector<Token>& tokens, size_t at, std::initializer_list<std::string_view> words);

/// Statements and, if they end in `return` outside all blocks, the expression after it.
struct Ending {
  Entry before;
  std::optional<Entry> result;
};
Ending split_result(const Entry& entry);
/// True if `text` ends in such a `return`, as a file with a flow does.
bool is_whole(std::string_view text);

/// Where `NAME = sluice.flow` begins outside all blocks, as an index in `tokens`; their count if nowhere.
size_t find_declaration(const std::vector<Token>& tokens);
/// True if there is one, or the statements return sluice.flow{...}.
bool declares_flow(const std::vector<Token>& tokens);

/// True if the statements begin with that of a function.
bool is_function(const std::vector<Token>& tokens);
/// "s" of "s = ..." and of "local s = ...": the one name that statements begin by assigning, or "".
std::string assigned_name(std::string_view statements);
/// The name that an expression is, if it is nothing else, or "".
std::string bare_name(std::string_view expression);
/// Adds the names that statements define outside their blocks.
void add_names(std::string_view statements, std::set<std::string>& names);

}  // namespace sluice::repl
