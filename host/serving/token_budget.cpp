#include "host/serving/token_budget.h"

#include <fmt/format.h>

#include <utility>

#include "scripting/base/error.h"
#include "scripting/pattern/analysis.h"

namespace sluice {

TokenBudget::TokenBudget(Eviction eviction, int most_positions) : eviction_(std::move(eviction)) {
  if (!eviction_.keep) return;
  try {
    last_readers_ = PatternAnalysis(*eviction_.keep).last_readers(most_positions);
  } catch (const InputError& error) {
    throw FlowError(eviction_.where, error.what(), error.hint());
  }
  check_kept(most_positions, 1);
  if (!keeps_prompt()) check_kept(most_positions, eviction_.chunk);
}

void TokenBudget::check_kept(int most_positions, int together) const {
  std::vector<int> ending(static_cast<size_t>(most_positions) + 1, 0);  // of `old`, by their last readers
  int old = 0;  // tokens that are neither the first nor recent, and are still read
  int entered = eviction_.first;
  int left = 0;
  for (int first = 0; first < most_positions; first += together) {
    const int newest = std::min(first + together, most_positions) - 1;
    const int recent = std::max(eviction_.first, std::min(first, newest - eviction_.recent + 1));  // the first of them
    for (; entered < recent; ++entered) {
      const int last = std::min(last_readers_[static_cast<size_t>(entered)], most_positions);
      if (last < first) continue;
      ++old;
      ++ending[static_cast<size_t>(last)];
    }
    for (; left < first; ++left) old -= ending[static_cast<size_t>(left)];
    const int kept = old + std::min(first, eviction_.first) + std::max(0, first - recent) + newest - first + 1;
    if (kept <= tokens()) continue;
    throw FlowError(
        eviction_.where,
        fmt::format("evict: {} tokens are not to leave at position {}, and the budget is of {}", kept, newest, tokens()),
        "keep fewer by the pattern, or give a larger budget or a smaller chunk");
  }
}

}  // namespace sluice
