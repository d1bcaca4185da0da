#include "scripting/graph/kept_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "scripting/base/error.h"

namespace sluice {

void check_kept_tokens(const Eviction& eviction, std::span<const int32_t> last_readers, int positions, int together) {
  std::vector<int> ending(static_cast<size_t>(positions) + 1, 0);  // of `old`, by their last readers
  int old = 0;  // tokens that are neither the first nor recent, and are still read
  int entered = eviction.first;
  int left = 0;
  for (int first = 0; first < positions; first += together) {
    const int newest = std::min(first + together, positions) - 1;
    const int recent = std::max(eviction.first, std::min(first, newest - eviction.recent + 1));  // the first of them
    for (; entered < recent; ++entered) {
      const int last = std::min(last_readers[static_cast<size_t>(entered)], positions);
      if (last < first) continue;
      ++old;
      ++ending[static_cast<size_t>(last)];
    }
    for (; left < first; ++left) old -= ending[static_cast<size_t>(left)];
    const int kept = old + std::min(first, eviction.first) + std::max(0, first - recent) + newest - first + 1;
    if (kept <= eviction.budget) continue;
    throw FlowError(
        eviction.where,
        fmt::format("evict: {} tokens are not to leave at position {}, and the budget is of {}", kept, newest, eviction.budget),
        "keep fewer by the pattern, or give a larger budget or a smaller chunk");
  }
}

}  // namespace sluice
