#include "store/database/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include "store/error.h"

namespace sluice::store {

namespace {

ErrorKind kind_of(int code) {
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return ErrorKind::kBusy;
    case SQLITE_INTERRUPT:
      return ErrorKind::kTooLong;
    case SQLITE_FULL:
      return ErrorKind::kFull;
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_IOERR:
    case SQLITE_NOMEM:
      return ErrorKind::kUnwritable;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ErrorKind::kCorrupted;
    default:
      return ErrorKind::kInternal;
  }
}

const char* hint_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kTooLong:
      return "filter by something else as well, or look for a longer text";
    case ErrorKind::kBusy:
      return "another process writes to the same database; try again";
    case ErrorKind::kFull:
      return "the disk is full: free some space and start again, nothing that was accepted is lost";
    case ErrorKind::kUnwritable:
      return "may this user read and write the folder, is the disk full or mounted read-only, has the machine memory and "
             "descriptors left?";
    case ErrorKind::kCorrupted:
      return "restore the file from a backup";
    default:
      return "";
  }
}

int flags_of(Database::Mode mode) {
  switch (mode) {
    case Database::Mode::kReadOnly:
      return SQLITE_OPEN_READONLY;
    case Database::Mode::kReadWrite:
      return SQLITE_OPEN_READWRITE;
    case Database::Mode::kCreate:
      return SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  }
  throw StoreError(ErrorKind::kInternal, "no such mode of a database");
}

}  // namespace

void CloseDatabase::operator()(sqlite3* database) const { sqlite3_close_v2(database); }
void FinalizeStatement::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Database::Database(const std::string& path, Mode mode, int busy_timeout_ms) : path_(path) {
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &opened, flags_of(mode) | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  database_.reset(opened);
  if (code != SQLITE_OK) fail(code, "open");
  sqlite3_busy_timeout(opened, busy_timeout_ms);
  execute("PRAGMA foreign_keys = ON");
  if (mode == Mode::kReadOnly) return;
  execute("PRAGMA journal_mode = WAL");
  execute("PRAGMA synchronous = FULL");  // what was accepted survives a loss of power
}

void Database::fail(int code, std::string_view doing) const {
  const char* detail = database_ ? sqlite3_errmsg(database_.get()) : sqlite3_errstr(code);
  throw StoreError(kind_of(code), fmt::format("cannot {} the database {}: {}", doing, path_, detail), hint_of(kind_of(code)));
}

void Database::execute(const char* sql) {
  const int code = sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code, "write");
}

int64_t Database::last_id() const { return sqlite3_last_insert_rowid(database_.get()); }

int64_t Database::version() {
  Query query(*this, "PRAGMA user_version");
  query.step();
  return query.integer(0);
}

TimeLimit::TimeLimit(Database& database, std::chrono::milliseconds most)
    : database_(database), end_(std::chrono::steady_clock::now() + most) {
  constexpr int kInstructions = 500;  // of SQLite's machine between looks at the clock: some rows
  sqlite3_progress_handler(database_.database_.get(), kInstructions, &TimeLimit::is_over, this);
}

TimeLimit::~TimeLimit() { sqlite3_progress_handler(database_.database_.get(), 0, nullptr, nullptr); }

int TimeLimit::is_over(void* limit) { return std::chrono::steady_clock::now() > static_cast<TimeLimit*>(limit)->end_ ? 1 : 0; }

void Database::back_up(const std::string& path) { Query(*this, "VACUUM INTO ?", path).run(); }

sqlite3_stmt* Database::prepared(const std::string& sql) {
  auto& kept = statements_[sql];
  if (!kept) {
    sqlite3_stmt* statement = nullptr;
    const int code = sqlite3_prepare_v3(database_.get(), sql.c_str(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT,
                                        &statement, nullptr);
    if (code != SQLITE_OK) fail(code, "query");
    kept.reset(statement);
  }
  if (sqlite3_stmt_busy(kept.get()) != 0) throw StoreError(ErrorKind::kInternal, "a statement is used inside itself: " + sql);
  return kept.get();
}

Query::Query(Prepared, Database& database, const std::string& sql) : database_(database), statement_(database.prepared(sql)) {}

Query::~Query() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void Query::check(int code) const {
  if (code != SQLITE_OK) database_.fail(code, "query");
}

void Query::bind_null() { check(sqlite3_bind_null(statement_, ++bound_)); }
void Query::bind(int64_t value) { check(sqlite3_bind_int64(statement_, ++bound_, value)); }
void Query::bind(double value) { check(sqlite3_bind_double(statement_, ++bound_, value)); }

void Query::bind(std::string_view text) {
  const char* start = text.data() != nullptr ? text.data() : "";  // a null pointer would bind NULL
  check(sqlite3_bind_text64(statement_, ++bound_, start, text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
}

void Query::bind(const Blob& blob) {
  check(sqlite3_bind_blob64(statement_, ++bound_, blob.bytes.data(), blob.bytes.size(), SQLITE_TRANSIENT));
}

bool Query::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  database_.fail(code, sqlite3_stmt_readonly(statement_) != 0 ? "read" : "write");
}

void Query::run() {
  while (step()) {
  }
}

bool Query::is_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
int64_t Query::integer(int column) const { return sqlite3_column_int64(statement_, column); }
double Query::real(int column) const { return sqlite3_column_double(statement_, column); }

std::string Query::text(int column) const { return blob(column); }

std::string Query::blob(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
  return bytes == nullptr ? std::string() : std::string(bytes, size);
}

std::optional<int64_t> Query::optional_integer(int column) const {
  if (is_null(column)) return std::nullopt;
  return integer(column);
}

std::optional<double> Query::optional_real(int column) const {
  if (is_null(column)) return std::nullopt;
  return real(column);
}

Transaction::Transaction(Database& database, Kind kind) : database_(database) {
  database.execute(kind == Kind::kWrite ? "BEGIN IMMEDIATE" : "BEGIN");
}

Transaction::~Transaction() {
  if (!open_) return;
  try {
    database_.execute("ROLLBACK");
  } catch (const StoreError&) {  // SQLite has rolled back by itself, as it does when the disk is full
  }
}

void Transaction::commit() {
  database_.execute("COMMIT");
  open_ = false;
}

}  // namespace sluice::store
