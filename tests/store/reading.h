#pragma once

#include <string>

#include "store/store.h"

namespace sluice::store::test {

/// All that a store tells of agents, submissions, attempts and comparisons, as text: equal for stores that tell the same.
std::string reading_of(Store& store);

}  // namespace sluice::store::test
