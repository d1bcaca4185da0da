#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scripting/graph/graph.h"

namespace sluice::cpu {

/// A token that takes the slot of one that has left.
struct SlotMove {
  int32_t from = 0;
  int32_t to = 0;
};

/// Tokens of one KV head, before rows come.
struct HeldTokens {
  std::span<const float> scores;          // [held]
  std::span<const int32_t> positions;     // [held]
  int staying = 0;                        // of them
  int first_row = 0;                      // position of the first row that comes
  int newest = 0;                         // of the last that comes with it: of its chunk
  std::span<const int32_t> last_readers;  // by position (GroupPages::last_readers), or empty
};

/// Finds who leaves (FlowGraph::eviction); its memory is sized once.
class Leavers {
 public:
  explicit Leavers(int max_tokens) {
    slots_.reserve(static_cast<size_t>(max_tokens)), moves_.reserve(static_cast<size_t>(max_tokens));
  }

  /// The moves that close the gaps: those who stay at slots from `staying` on go to the slots of those who leave below it, both
  /// ascending. Valid until it runs again. Throws InternalError where fewer may leave than have to.
  std::span<const SlotMove> find(const Eviction& eviction, const HeldTokens& held);

  size_t bytes() const { return slots_.capacity() * sizeof(int32_t) + moves_.capacity() * sizeof(SlotMove); }

 private:
  std::vector<int32_t> slots_;
  std::vector<SlotMove> moves_;
};

}  // namespace sluice::cpu
