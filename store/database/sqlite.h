#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace sluice::store {

/// Bytes, where text would be taken for UTF-8.
struct Blob {
  std::string bytes;
};

struct CloseDatabase {
  void operator()(sqlite3* database) const;
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const;
};

/// A connection to an SQLite file, for one thread at a time. Statements are prepared once and kept. Throws StoreError.
class Database {
 public:
  enum class Mode { kReadOnly, kReadWrite, kCreate };

  Database(const std::string& path, Mode mode, int busy_timeout_ms);

  const std::string& path() const { return path_; }
  /// Runs statements without parameters or results.
  void execute(const char* sql);
  int64_t last_id() const;
  /// PRAGMA user_version: the version of the schema.
  int64_t version();
  /// A copy of the database in another file, which is written anew.
  void back_up(const std::string& path);

  /// Throws what the result code of SQLite means. `doing` completes "cannot ...".
  [[noreturn]] void fail(int code, std::string_view doing) const;

 private:
  friend class Query;
  friend class TimeLimit;
  sqlite3_stmt* prepared(const std::string& sql);

  std::string path_;
  std::unique_ptr<sqlite3, CloseDatabase> database_;
  std::map<std::string, std::unique_ptr<sqlite3_stmt, FinalizeStatement>> statements_;
};

/// One use of a prepared statement: binds, steps, reads columns from 0, and leaves the statement ready for the next use.
class Query {
 public:
  template <class... Values>
  explicit Query(Database& database, const std::string& sql, const Values&... values) : Query(Prepared(), database, sql) {
    (bind(values), ...);
  }
  ~Query();
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  /// Binds the next parameter.
  void bind(int64_t value);
  void bind(int value) { bind(static_cast<int64_t>(value)); }
  void bind(double value);
  void bind(std::string_view text);
  void bind(const std::string& text) { bind(std::string_view(text)); }
  void bind(const char* text) { bind(std::string_view(text)); }
  void bind(const Blob& blob);
  template <class Value>
  void bind(const std::optional<Value>& value) {
    if (value) {
      bind(*value);
    } else {
      bind_null();
    }
  }

  /// To the next row; false after the last.
  bool step();
  /// For statements without rows.
  void run();

  bool is_null(int column) const;
  int64_t integer(int column) const;
  double real(int column) const;
  std::string text(int column) const;
  std::string blob(int column) const;
  std::optional<int64_t> optional_integer(int column) const;
  std::optional<double> optional_real(int column) const;

 private:
  struct Prepared {};
  Query(Prepared, Database& database, const std::string& sql);
  void bind_null();
  void check(int code) const;

  Database& database_;
  sqlite3_stmt* statement_;
  int bound_ = 0;
};

/// Ends queries that take longer, as long as it lives: StoreError (kTooLong). One at a time for a database.
class TimeLimit {
 public:
  TimeLimit(Database& database, std::chrono::milliseconds most);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  static int is_over(void* limit);

  Database& database_;
  std::chrono::steady_clock::time_point end_;
};

/// A transaction that is rolled back unless it was committed. Writers take their lock at once (BEGIN IMMEDIATE), so that they
/// never have to give up half-way; readers see one state of the database.
class Transaction {
 public:
  enum class Kind { kRead, kWrite };

  Transaction(Database& database, Kind kind);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace sluice::store
