#pragma once

#include <cstdint>
#include <string>

#include "store/database/sqlite.h"

namespace sluice::store {

/// The schema that this program reads and writes.
constexpr int64_t kSchemaVersion = 7;

/// Throws StoreError: kTooNew, or kCorrupted for a version that no program wrote; an older schema is kInvalid.
void require_current(Database& database);

/// Whether nobody has made any table in it.
bool is_blank(Database& database);

/// Makes the schema in an empty database, or brings an older one up to date, each step in a transaction of its own. An older
/// database is first copied to a file beside it, whose path is returned; otherwise the result is empty. Throws kTooNew; after any
/// error the connection is of no use, since it may not check foreign keys.
std::string migrate(Database& database);

}  // namespace sluice::store
