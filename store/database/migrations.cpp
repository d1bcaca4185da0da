#include "store/database/migrations.h"

#include <fmt/format.h>

#include <array>

#include "store/database/embedded_sql.h"
#include "store/error.h"
#include "store/folder/files.h"

namespace sluice::store {

namespace {

/// Step i brings version i + 1 to version i + 2.
constexpr std::array kSteps = {kMigration2Sql, kMigration3Sql, kMigration4Sql, kMigration5Sql, kMigration6Sql, kMigration7Sql};
static_assert(kSteps.size() + 1 == kSchemaVersion);

void refuse_unknown(const Database& database, int64_t version) {
  if (version > kSchemaVersion) {
    throw StoreError(ErrorKind::kTooNew,
                     fmt::format("the database {} has version {}, and this program knows versions up to {}", database.path(),
                                 version, kSchemaVersion),
                     "it was written by a later sluice: use that one");
  }
  if (version < 0) {
    throw StoreError(ErrorKind::kCorrupted, fmt::format("the database {} has version {}", database.path(), version));
  }
}

/// One step and its version, both or neither.
void apply(Database& database, const char* sql, int64_t version) {
  Transaction transaction(database, Transaction::Kind::kWrite);
  if (database.version() >= version) return;  // another process was faster
  database.execute(sql);
  database.execute(fmt::format("PRAGMA user_version = {}", version).c_str());
  transaction.commit();
}

std::string back_up_beside(Database& database, int64_t version) {
  for (int i = 0;; ++i) {
    std::string path = fmt::format("{}.version{}{}", database.path(), version, i == 0 ? "" : fmt::format(".{}", i));
    if (is_there(path)) continue;
    // Whole or not at all: what stands under that name is what an operator restores.
    const std::string part = path + ".part";
    remove_all(part);  // of one that was killed at this
    try {
      database.back_up(part);
    } catch (...) {
      std::error_code ignored;
      std::filesystem::remove(part, ignored);
      throw;
    }
    rename(part, path);
    return path;
  }
}

}  // namespace

void require_current(Database& database) {
  const int64_t version = database.version();
  refuse_unknown(database, version);
  if (version != kSchemaVersion) {
    throw StoreError(ErrorKind::kInvalid,
                     fmt::format("the database {} has version {}, not {}", database.path(), version, kSchemaVersion),
                     "sluice serve brings its data folder up to date");
  }
}

bool is_blank(Database& database) {
  Query query(database, "SELECT COUNT(*) FROM sqlite_schema");
  query.step();
  return query.integer(0) == 0;
}

std::string migrate(Database& database) {
  int64_t version = database.version();
  refuse_unknown(database, version);
  if (version == kSchemaVersion) return {};
  if (version == 0) {
    if (!is_blank(database)) {
      throw StoreError(ErrorKind::kCorrupted, fmt::format("{} is a database, but not one of Sluice", database.path()),
                       "choose another data folder");
    }
    apply(database, kSchemaSql, kSchemaVersion);
    return {};
  }
  std::string copy = back_up_beside(database, version);
  database.execute("PRAGMA foreign_keys = OFF");  // a step may put another table in the place of one that others point to
  for (; version < kSchemaVersion; ++version) apply(database, kSteps.at(static_cast<size_t>(version - 1)), version + 1);
  database.execute("PRAGMA foreign_keys = ON");
  return copy;
}

}  // namespace sluice::store
