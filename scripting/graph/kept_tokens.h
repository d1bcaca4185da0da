#pragma once

#include <cstdint>
#include <span>

#include "scripting/graph/graph.h"

namespace sluice {

/// Throws FlowError if, of a sequence of `positions` tokens, rows that come `together` leave more of the tokens before them than
/// the budget has: what is among the first, recent, or still read under the pattern that is kept. `last_readers`: the last row
/// that reads the token at each position under it (PatternAnalysis).
void check_kept_tokens(const Eviction& eviction, std::span<const int32_t> last_readers, int positions, int together);

}  // namespace sluice
