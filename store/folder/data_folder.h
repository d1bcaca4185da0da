#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "store/folder/folder_lock.h"
#include "store/lineage/lineage.h"
#include "store/store.h"

namespace sluice::store {

/// Where data lies unless the command line says otherwise: below the working directory.
constexpr const char* kDefaultDataFolder = "sluice-data";

/// What was looked at, and every disagreement in words.
struct FsckReport {
  int64_t agents = 0;
  int64_t submissions = 0;
  int64_t evaluations = 0;
  int64_t commits = 0;
  std::vector<std::string> problems;
  bool clean() const { return problems.empty(); }
};

/// A folder with a database (sluice.db) and the repository of lineage (lineage.git), held by one process at a time.
class DataFolder {
 public:
  /// Makes what is missing, brings an older schema up to date (the old file is kept beside it), and adds to the repository what
  /// the database has. A damaged repository is moved aside and made anew; what was done is told by `notices`.
  /// Throws StoreError: kInvalid (a folder of other files), kLocked, kFull, kUnwritable, kTooNew, kCorrupted (the database; or it
  /// is gone and the repository is not).
  /// Another process that holds the folder is waited for; kLocked is thrown after `patience`.
  explicit DataFolder(const std::string& path, std::chrono::milliseconds patience = kFolderPatience);

  /// A connection of its own for the calling thread.
  Store open_store(StoreOptions options = {}) const;
  /// Adds to the repository what is new in the database. One that was damaged meanwhile is moved aside and made anew, once, which
  /// is told; else "". One thread at a time. Throws StoreError.
  std::string sync_lineage();
  /// What a person should know of how the folder was opened.
  const std::vector<std::string>& notices() const { return notices_; }
  /// Why nothing can be kept at the moment (a full disk, one that became read-only), in words; "" if it can. Looks at the file
  /// system alone and may be called by any thread.
  std::string trouble() const;
  /// Looks at everything and changes nothing.
  FsckReport fsck();

 private:
  void prepare_database();
  void open_lineage();
  /// Opens the repository, adds what the database has and compares both. What is damaged; "" if nothing is.
  std::string damage_of_repository();
  /// Where to.
  std::string move_repository_aside();
  /// What a person should know of it.
  std::string make_repository_anew(const std::string& why, const std::string& aside);
  std::string database_path() const { return path_ + "/sluice.db"; }
  std::string repository_path() const { return path_ + "/lineage.git"; }
  /// Where a damaged repository goes.
  std::string aside_path(int number) const { return repository_path() + ".damaged." + std::to_string(number); }

  std::string path_;
  FolderLock lock_;
  std::vector<std::string> notices_;
  std::string untold_;  // notice of a repository that was moved aside and could not be made anew yet
  std::unique_ptr<Lineage> lineage_;
  bool may_replace_ = true;  // the repository, once since the folder was opened
};

/// A store of a folder, whether a server uses it or not. `makes`: where there is none, the folder is made. What another process
/// is making or bringing up to date is waited for. Throws StoreError as DataFolder does, and kNotFound; kLocked after `patience`.
Store open_store_of(const std::string& folder, bool makes, std::chrono::milliseconds patience = kFolderPatience);

/// Looks at a folder that no server uses, without repairing or migrating anything but what a killed process left half done
/// (locks, temporary files, the log of the database). Throws StoreError (kNotFound if there is no
/// data in the folder, kLocked after `patience`, kTooNew).
FsckReport fsck(const std::string& folder, std::chrono::milliseconds patience = kFolderPatience);

}  // namespace sluice::store
