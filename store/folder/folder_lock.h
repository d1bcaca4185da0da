#pragma once

#include <chrono>
#include <string>

namespace sluice::store {

/// How long whoever comes second waits for a data folder: what makes or checks one holds it for a moment, and only a server keeps
/// it.
constexpr std::chrono::milliseconds kFolderPatience{5000};

/// An exclusive lock on a data folder, held until the object ends, or its process in any way.
class FolderLock {
 public:
  /// Waits at most `patience` for another holder. Throws StoreError: kLocked with the process id of who holds it, kUnwritable.
  explicit FolderLock(const std::string& folder, std::chrono::milliseconds patience = kFolderPatience);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;

 private:
  int file_ = -1;
};

}  // namespace sluice::store
