#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::repl {

/// What there is to complete with, beside the language's own words.
struct Vocabulary {
  std::vector<std::string> commands;  // with their colon
  std::vector<std::string> names;     // of the draft
  std::vector<std::string> members;   // of c
};

struct Completion {
  size_t begin = 0;                     // where the word begins that the candidates complete
  std::vector<std::string> candidates;  // whole words, sorted, each once
};

/// Words that may stand at the end of `line`, the part of a line before the cursor: commands at its beginning, operators after
/// ":" and "sluice.", fields after "c.", axes inside quotes, and names.
Completion complete(std::string_view line, const Vocabulary& vocabulary);

/// The longest beginning that all candidates share.
std::string common_prefix(const std::vector<std::string>& candidates);

}  // namespace sluice::repl
