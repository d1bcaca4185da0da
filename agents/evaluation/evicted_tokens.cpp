#include "agents/evaluation/evicted_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sluice {

std::string EvictedTokens::follow(std::span<const int32_t> seen, int first, int rows, bool decoding, oracle::States& states) {
  const auto held = static_cast<int>(positions_.size());
  const int newest = decoding ? first : budget_.chunk_end(first, prompt_) - 1;
  if (held > staying(first)) {
    oracle::HeldTokens tokens{positions_, {}};
    const auto saved = states.find(traced_.eviction->score);
    if (saved != states.end()) tokens.scores = saved->second.values;
    tokens.scores.resize(static_cast<size_t>(held));
    std::vector<int32_t> gone;
    for (int32_t slot = 0; slot < held; ++slot) {
      if (std::find(seen.begin(), seen.end(), positions_[static_cast<size_t>(slot)]) == seen.end()) gone.push_back(slot);
    }
    if (static_cast<int>(gone.size()) != held - staying(first))
      return fmt::format("{} tokens have left, and {} were to", gone.size(), held - staying(first));
    const std::vector<int32_t> candidates = oracle::may_leave(*traced_.eviction, tokens, first, newest, budget_.last_readers());
    std::string fault = fault_of_leaving(tokens, candidates, gone);
    if (!fault.empty()) return fault;
    const std::vector<int32_t> from = oracle::closed_up(held, gone);
    std::vector<int32_t> left;
    for (const int32_t slot : from) left.push_back(positions_[static_cast<size_t>(slot)]);
    oracle::move_tokens(traced_, from, std::max(held, staying(first) + rows), states);
    positions_ = std::move(left);
  }
  if (!std::equal(positions_.begin(), positions_.end(), seen.begin(), seen.end())) return "tokens lie in other slots";
  for (int row = 0; row < rows; ++row) positions_.push_back(first + row);
  return {};
}

std::string EvictedTokens::fault_of_leaving(const oracle::HeldTokens& held, const std::vector<int32_t>& candidates,
                                            const std::vector<int32_t>& gone) const {
  for (const int32_t slot : gone) {
    if (!std::binary_search(candidates.begin(), candidates.end(), slot))
      return fmt::format("the token at {} has left, and may not", held.positions[static_cast<size_t>(slot)]);
  }
  const std::vector<int32_t> expected = oracle::leaving(held, candidates, static_cast<int>(gone.size()));
  for (const int32_t slot : gone) {
    if (std::binary_search(expected.begin(), expected.end(), slot)) continue;
    // In place of one that stayed: the errors of both, or of whoever stayed, have to reach each other.
    for (const int32_t other : expected) {
      if (std::binary_search(gone.begin(), gone.end(), other)) continue;
      const oracle::Bounded& left = held.scores[static_cast<size_t>(slot)];
      const oracle::Bounded& stayed = held.scores[static_cast<size_t>(other)];
      const bool open = is_unknown(left) || is_unknown(stayed) ||
                        (left.error + stayed.error > 0 && left.value - left.error <= stayed.value + stayed.error);
      if (!open) {
        return fmt::format("the token at {} has left, whose score is {}, and that at {}, whose score is {}, has not",
                           held.positions[static_cast<size_t>(slot)], left.value, held.positions[static_cast<size_t>(other)],
                           stayed.value);
      }
    }
  }
  return {};
}

}  // namespace sluice
