#pragma once

#include <string>
#include <vector>

#include "store/database/sqlite.h"

namespace sluice::store {

/// What SQLite finds damaged in the file itself; empty if nothing is.
std::vector<std::string> damage_of(Database& database);

/// Damage, foreign keys that point nowhere, and rows that contradict one another, in words; empty if all is well.
std::vector<std::string> broken_invariants(Database& database);

}  // namespace sluice::store
