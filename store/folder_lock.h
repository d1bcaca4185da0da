#pragma once

#include <string>

namespace sluice::store {

/// An exclusive lock on a data folder, held until the object ends, or its process in any way.
class FolderLock {
 public:
  /// Throws StoreError: kLocked with the process id of who holds it, kUnwritable.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;

 private:
  int file_ = -1;
};

}  // namespace sluice::store
