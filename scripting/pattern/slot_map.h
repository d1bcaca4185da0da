#pragma once

#include <cstdint>
#include <vector>

#include "scripting/pattern/analysis.h"

namespace sluice {

/// Where the tokens of a sequence are kept under a pattern, so that the cache is the smallest there is (SAS, section 5): each in
/// the lowest slot that is free. It follows from the position alone, so it is the same for all sequences. A token has its slot as
/// long as it is the newest, too, if no later query reads it.
class SlotMap {
 public:
  /// Of sequences of up to `length` tokens.
  SlotMap(const PatternAnalysis& analysis, int length);

  int length() const { return static_cast<int>(slots_.size()); }
  int slot(int token) const { return slots_[static_cast<size_t>(token)]; }
  /// The last query that reads the token, its own at least.
  int last_reader(int token) const { return last_[static_cast<size_t>(token)]; }
  /// The first query that does not need what was in the token's slot before.
  int free_from(int token) const { return free_from_[static_cast<size_t>(token)]; }
  /// Slots that the first `tokens` tokens have taken.
  int used(int tokens) const;

 private:
  std::vector<int32_t> last_;
  std::vector<int32_t> slots_;
  std::vector<int32_t> free_from_;
  std::vector<int32_t> first_tokens_;  // [slots] ascending
};

}  // namespace sluice
