#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// The candidate most like `word` (edits, a swap of neighbours counting once, of at most a third of its length or 1), or "".
/// Ties go to the earlier candidate.
std::string closest(std::string_view word, const std::vector<std::string>& candidates);

/// A hint for a word that is not among `candidates`: did you mean "..."? Or, where none is close, the whole list.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace sluice
