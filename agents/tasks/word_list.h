#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agents/tasks/rng.h"

namespace sluice {

/// A list of words of which some are more frequent than all others, and which those are.
struct WordList {
  std::vector<std::string> words;  // in the order of the document
  std::vector<std::string> most;   // most frequent first; each strictly more frequent than every word outside
};

/// The `wanted` most frequent of `words`, most frequent first (equal counts: in order of appearance); nothing if the last of
/// them is not strictly more frequent than the next.
std::optional<std::vector<std::string>> most_frequent(const std::vector<std::string>& words, size_t wanted);

/// `common` words that together are 20 to 50 % of the list, the rarest at least half as frequent as the most frequent;
/// the others are equally likely.
WordList common_word_list(const std::vector<std::string>& vocabulary, Rng& rng, int length, int common);

/// Words drawn by rank with weight 1/rank^2; `frequent` of them are asked for.
WordList frequent_word_list(const std::vector<std::string>& vocabulary, Rng& rng, int length, int frequent);

}  // namespace sluice
