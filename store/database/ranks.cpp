#include "store/database/ranks.h"

#include <algorithm>
#include <cmath>

namespace sluice::store {

bool is_better(const Comparable& one, const Comparable& other, bool higher_is_better) {
  const double difference = higher_is_better ? one.value - other.value : other.value - one.value;
  if (!one.low || !one.high || !other.low || !other.high) return difference > 0;
  const double own = higher_is_better ? one.value - *one.low : *one.high - one.value;
  const double facing = higher_is_better ? *other.high - other.value : other.value - *other.low;
  return difference > std::hypot(std::max(own, 0.0), std::max(facing, 0.0));
}

int64_t rank_of(std::span<const Comparable> entries, size_t index, bool higher_is_better) {
  const auto before = entries.first(index);
  return 1 + std::count_if(before.begin(), before.end(),
                           [&](const Comparable& each) { return is_better(each, entries[index], higher_is_better); });
}

}  // namespace sluice::store
