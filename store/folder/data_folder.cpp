#include "store/folder/data_folder.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "store/database/invariants.h"
#include "store/database/migrations.h"
#include "store/database/sqlite.h"
#include "store/error.h"
#include "store/folder/files.h"
#include "store/lineage/repository_files.h"

namespace sluice::store {

namespace {

namespace fs = std::filesystem;

constexpr int kBusyTimeoutMs = 10000;
constexpr uint64_t kLeastFree = uint64_t{1} << 20;  // bytes: a submission and its verdict are some hundred kilobytes at most

/// Or not there.
bool is_empty(const std::string& file) {
  if (type_of(file) == fs::file_type::not_found) return true;
  std::error_code error;
  return fs::file_size(file, error) == 0 || error;
}

/// The repository is made after the database, so one beside an empty database has outlived what was in it, and would be taken for
/// damaged.
[[noreturn]] void refuse_lost(const std::string& database, const char* how) {
  throw StoreError(ErrorKind::kCorrupted,
                   fmt::format("the database {} is {}, but the repository beside it has submissions of it", database, how),
                   "restore it from a backup; to begin anew, choose another folder with --data");
}

/// Throws StoreError for a folder without a database in which somebody keeps other files, since it was hardly meant.
void refuse_foreign(const std::string& path) {
  if (!is_empty(path + "/sluice.db")) return;
  for (const fs::path& entry : entries_of(path)) {
    const std::string name = entry.filename().string();
    // What ending between the first steps of making a folder leaves, what stays where somebody took database and repository
    // away, and what lies in the root of a disk.
    const bool is_ours =
        name == "lock" || name.starts_with("seed") || name.starts_with("sluice.db") || name.starts_with("lineage.git");
    if (is_ours || name == "lost+found") continue;
    throw StoreError(ErrorKind::kInvalid, fmt::format("{} is no data folder: it has \"{}\" in it, but no sluice.db", path, name),
                     "name a new or empty folder with --data");
  }
}

std::string made(const std::string& path) {
  std::error_code error;
  const bool is_new = fs::create_directories(path, error);
  if (error) {
    throw StoreError(ErrorKind::kUnwritable, fmt::format("cannot make the data folder {}: {}", path, error.message()),
                     "choose another one with --data");
  }
  if (is_new) {
    fs::permissions(path, fs::perms::owner_all, error);  // scripts are for the server to show
  } else {
    refuse_foreign(path);
  }
  return path;
}

FsckReport checked(Database& database, Lineage* lineage) {
  FsckReport report;
  const auto count = [&](const char* table) {
    Query query(database, fmt::format("SELECT COUNT(*) FROM {}", table));
    query.step();
    return query.integer(0);
  };
  try {
    report.problems = broken_invariants(database);
    report.agents = count("agents");
    report.submissions = count("submissions");
    report.evaluations = count("evaluations");
    report.commits = count("commits");
    if (lineage != nullptr) {
      for (std::string& problem : lineage->check()) report.problems.push_back("lineage.git: " + std::move(problem));
    }
  } catch (const StoreError& error) {
    if (error.kind() != ErrorKind::kCorrupted) throw;
    report.problems.emplace_back(error.what());
  }
  return report;
}

}  // namespace

DataFolder::DataFolder(const std::string& path, std::chrono::milliseconds patience) : path_(made(path)), lock_(path_, patience) {
  prepare_database();
  open_lineage();
}

void DataFolder::prepare_database() {
  if (is_empty(database_path()) && is_there(repository_path())) {
    refuse_lost(database_path(), is_there(database_path()) ? "empty" : "gone");
  }
  Database database(database_path(), Database::Mode::kCreate, kBusyTimeoutMs);
  if (is_blank(database) && is_there(repository_path())) refuse_lost(database_path(), "empty");
  const std::string backup = migrate(database);
  if (!backup.empty()) notices_.push_back(fmt::format("the database was brought up to date; as it was: {}", backup));
  const auto damage = damage_of(database);
  if (damage.empty()) return;
  throw StoreError(ErrorKind::kCorrupted, fmt::format("the database {} is damaged: {}", database_path(), damage.front()),
                   "restore it from a backup, or choose another folder with --data");
}

std::string DataFolder::damage_of_repository() {
  lineage_.reset();
  try {
    if (is_there(repository_path())) {
      const auto damage = damaged_files(repository_path());  // before libgit2 reads or writes any of it
      if (!damage.empty()) return damage.front();
    }
    lineage_ = std::make_unique<Lineage>(repository_path(), database_path());
    lineage_->sync();
    const auto damage = lineage_->damage();  // others have submitted and judged meanwhile, perhaps
    return damage.empty() ? std::string() : damage.front();
  } catch (const StoreError& error) {
    if (error.kind() != ErrorKind::kCorrupted) throw;
    return error.what();
  }
}

void DataFolder::open_lineage() {
  remove_leftovers(repository_path());
  const bool was_there = is_there(repository_path());
  const std::string damage = damage_of_repository();
  if (!damage.empty()) notices_.push_back(make_repository_anew(damage, move_repository_aside()));
  // A process that moved one aside may have ended before it made another, or told of it.
  const std::string aside = aside_path(1);
  if (!was_there && is_there(aside)) {
    notices_.push_back(fmt::format("the repository of lineage was gone and is made anew; it was damaged before: {}", aside));
  }
}

std::string DataFolder::sync_lineage() {
  try {
    if (!lineage_) lineage_ = std::make_unique<Lineage>(repository_path(), database_path());  // it could not be made anew before
    lineage_->sync();
    return std::exchange(untold_, {});
  } catch (const StoreError& error) {
    if (error.kind() != ErrorKind::kCorrupted || !may_replace_) throw;
    // What is wrong with the database is not mended by taking the last whole copy away.
    Database database(database_path(), Database::Mode::kReadOnly, kBusyTimeoutMs);
    may_replace_ = damage_of(database).empty();
    if (!may_replace_) throw;
    // The machine may have lacked for a moment what it takes to read a whole one.
    const std::string damage = damage_of_repository();
    if (damage.empty()) return {};
    const std::string aside = move_repository_aside();
    may_replace_ = false;  // not before: what is in the way of it may pass
    return make_repository_anew(damage, aside);
  }
}

std::string DataFolder::move_repository_aside() {
  lineage_.reset();
  std::string aside;
  for (int i = 1; aside.empty() || is_there(aside); ++i) aside = aside_path(i);
  rename(repository_path(), aside);
  return aside;
}

std::string DataFolder::make_repository_anew(const std::string& why, const std::string& aside) {
  untold_ = fmt::format("the repository of lineage was damaged ({}) and made anew; as it was: {}", why, aside);
  lineage_ = std::make_unique<Lineage>(repository_path(), database_path());
  lineage_->sync();
  return std::exchange(untold_, {});
}

Store DataFolder::open_store(StoreOptions options) const { return Store(database_path(), std::move(options)); }

std::string DataFolder::trouble() const {
  struct statvfs disk {};
  if (::statvfs(path_.c_str(), &disk) != 0) return fmt::format("the data folder: {}", std::strerror(errno));
  if ((disk.f_flag & ST_RDONLY) != 0) return "the data folder's disk is read-only";
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  return free < kLeastFree ? fmt::format("the data folder's disk is full: {} KiB are free", free >> 10) : std::string();
}

FsckReport DataFolder::fsck() {
  Database database(database_path(), Database::Mode::kReadOnly, kBusyTimeoutMs);
  return checked(database, lineage_.get());
}

namespace {

/// Throws StoreError.
void require_database(const std::string& path) {
  if (!is_there(path)) {
    throw StoreError(ErrorKind::kNotFound, fmt::format("there is no database {}", path),
                     "which folder did sluice serve get as --data?");
  }
}

/// What a database is to somebody who comes to it without holding its folder.
enum class Readiness { kMissing, kOther, kCurrent };

Readiness readiness_of(const std::string& path) {
  if (is_empty(path)) return Readiness::kMissing;
  Database database(path, Database::Mode::kReadOnly, kBusyTimeoutMs);    // which is in nobody's way
  if (database.version() >= kSchemaVersion) return Readiness::kCurrent;  // a later one is refused by whoever opens it
  return is_blank(database) ? Readiness::kMissing : Readiness::kOther;
}

}  // namespace

Store open_store_of(const std::string& folder, bool makes, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kTurn{20};
  const std::string path = folder + "/sluice.db";
  for (const auto deadline = std::chrono::steady_clock::now() + patience;;) {
    try {
      const Readiness readiness = readiness_of(path);
      if (readiness == Readiness::kCurrent) return Store(path);
      if (readiness == Readiness::kMissing && makes) {
        const DataFolder made(folder, kTurn);
      } else {
        if (!is_there(folder + "/lock")) require_database(path);
        const FolderLock lock(folder, kTurn);
        require_database(path);
        return Store(path);  // nobody is at it: it throws what is wrong with it
      }
    } catch (const StoreError& error) {
      const bool passes = error.kind() == ErrorKind::kLocked || error.kind() == ErrorKind::kBusy;
      if (!passes || std::chrono::steady_clock::now() >= deadline) throw;
    }
  }
}

FsckReport fsck(const std::string& folder, std::chrono::milliseconds patience) {
  const std::string path = folder + "/sluice.db", repository = folder + "/lineage.git";
  if (!is_there(folder + "/lock")) require_database(path);  // where there is one, somebody may be making the rest
  const FolderLock lock(folder, patience);
  require_database(path);
  Database database(path, Database::Mode::kReadWrite, kBusyTimeoutMs);  // what a killed process left in the log belongs to it
  if (is_blank(database) && is_there(repository)) refuse_lost(path, "empty");
  require_current(database);
  std::unique_ptr<Lineage> lineage;
  std::vector<std::string> damage = is_there(repository) ? damaged_files(repository) : std::vector<std::string>{"missing"};
  try {
    if (damage.empty()) {
      remove_leftovers(repository);
      lineage = std::make_unique<Lineage>(repository, path);
    }
  } catch (const StoreError& error) {
    if (error.kind() != ErrorKind::kCorrupted) throw;
    damage.emplace_back(error.what());
  }
  FsckReport report = checked(database, lineage.get());
  for (const std::string& problem : damage) report.problems.push_back("lineage.git: " + problem);
  return report;
}

}  // namespace sluice::store
