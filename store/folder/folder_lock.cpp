#include "store/folder/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "store/error.h"
#include "store/folder/system_error.h"

namespace sluice::store {

namespace {

/// What the holder wrote into the file; it may not have come to that yet.
std::string holder_of(int file) {
  std::array<char, 32> text{};
  const ssize_t size = ::pread(file, text.data(), text.size(), 0);
  const std::string pid(text.data(), size > 0 ? static_cast<size_t>(size) : 0);
  return pid.empty() ? "another process" : "process " + pid.substr(0, pid.find('\n'));
}

/// Whether it could be locked: EWOULDBLOCK if another process still has it after `patience`, 0, or what keeps anybody from it.
int lock_within(int file, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kStep{10};
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (error == EINTR) continue;
    if (error != EWOULDBLOCK || std::chrono::steady_clock::now() >= deadline) return error;
    std::this_thread::sleep_for(kStep);
  }
  return 0;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, std::chrono::milliseconds patience) {
  const std::string path = folder + "/lock";
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_ < 0) {
    const int error = errno;
    throw StoreError(ErrorKind::kUnwritable, fmt::format("cannot write to the data folder {}: {}", folder, std::strerror(error)),
                     hint_of_system_error(error));
  }
  if (const int error = lock_within(file_, patience); error != 0) {
    const std::string holder = holder_of(file_);
    ::close(file_);
    if (error != EWOULDBLOCK) {
      throw StoreError(ErrorKind::kUnwritable, fmt::format("cannot lock the data folder {}: {}", folder, std::strerror(error)),
                       hint_of_system_error(error));
    }
    throw StoreError(ErrorKind::kLocked, fmt::format("the data folder {} is in use by {}", folder, holder),
                     "stop that one first, or choose another folder with --data");
  }
  // Only for the message above: a full disk must not keep anybody out.
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(file_, 0) == 0) static_cast<void>(!::pwrite(file_, pid.data(), pid.size(), 0));
}

FolderLock::FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

FolderLock::~FolderLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace sluice::store
