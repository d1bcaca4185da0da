#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "scripting/graph/graph.h"

namespace sluice {

/// What a group of layers keeps of a sequence whose flow evicts (FlowGraph::eviction). It follows from numbers of tokens alone:
/// who leaves is known to the device.
class TokenBudget {
 public:
  /// Of sequences of up to `most_positions` tokens. Throws FlowError where more tokens are not to leave than the budget has.
  TokenBudget(Eviction eviction, int most_positions);

  int tokens() const { return eviction_.budget; }
  /// Whether a prompt is kept whole until its end.
  bool keeps_prompt() const { return eviction_.chunk == 0; }
  /// The last row that reads the token at each position under Eviction::keep; empty: there is none.
  const std::vector<int32_t>& last_readers() const { return last_readers_; }

  /// Rows of a prompt of `prompt` rows, those before the first decode step, up to the end of the chunk that `row` is in.
  int chunk_end(int row, int prompt) const { return eviction_.chunk_end(row, prompt); }
  /// Tokens that are there once `computed` rows of a sequence have been computed.
  int held(int computed, int prompt) const {
    if (keeps_prompt() && computed <= prompt) return computed;
    return computed >= prompt || computed % eviction_.chunk == 0 ? std::min(computed, tokens()) : staying(computed, prompt);
  }
  /// Those of them that are still there when the row at `first` comes.
  int staying(int first, int prompt) const {
    if (first >= prompt) return std::min(first, tokens() - 1);
    if (keeps_prompt()) return first;
    const int begin = first - first % eviction_.chunk;
    return std::min(begin, tokens() - (chunk_end(first, prompt) - begin)) + first - begin;
  }
  /// Slots that rows up to `end` take.
  int slots(int end, int prompt) const { return keeps_prompt() && end <= prompt ? end : std::min(end, tokens()); }
  /// The most slots that a sequence of `all` tokens has at a time.
  int most_slots(int all, int prompt) const {
    return std::max(keeps_prompt() ? std::min(all, prompt) : 0, std::min(all, tokens()));
  }

 private:
  Eviction eviction_;
  std::vector<int32_t> last_readers_;
};

}  // namespace sluice
