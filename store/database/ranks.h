#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

// Ranks of values that are known to an interval. One is better than another if it is so by more than the interval of their
// difference, which reaches as far as the root of the summed squares of what the two have towards each other (MOVER: Zou and
// Donner 2008). Of two of which one has no interval the values alone are compared.

namespace sluice::store {

struct Comparable {
  double value = 0;
  std::optional<double> low = {};
  std::optional<double> high = {};
};

bool is_better(const Comparable& one, const Comparable& other, bool higher_is_better);

/// One more than there are better ones than entry `index` of `entries`, of which the best value is first. Ranks need not rise
/// along the list: behind a sure value may stand one that could be anything.
int64_t rank_of(std::span<const Comparable> entries, size_t index, bool higher_is_better);

}  // namespace sluice::store
