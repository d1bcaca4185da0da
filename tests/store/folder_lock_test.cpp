#include "store/folder/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <string>

#include "store/error.h"
#include "tests/store/folder.h"

namespace {

std::deque<int> flock_errors;  // of the next calls, in turn
int flock_calls = 0;

}  // namespace

// The program's own definition comes before the library's.
extern "C" int flock(  // NOLINT(readability-inconsistent-declaration-parameter-name): the library's are reserved
    int file, int operation) noexcept {
  ++flock_calls;
  if (flock_errors.empty()) return static_cast<int>(::syscall(SYS_flock, file, operation));
  errno = flock_errors.front();
  flock_errors.pop_front();
  return -1;
}

namespace sluice::store::test {
namespace {

TEST(FolderLock, WaitsForAnotherHolderAlone) {
  const Folder folder;
  constexpr std::chrono::hours kPatience{1};  // which a wrong reading would wait for
  flock_errors = {EINTR, EWOULDBLOCK, EINTR};
  flock_calls = 0;
  EXPECT_NO_THROW(FolderLock(folder.path(), kPatience));
  EXPECT_EQ(flock_calls, 4);
  for (const int error : {ENOLCK, EINVAL, EBADF}) {
    flock_errors = {error};
    flock_calls = 0;
    try {
      const FolderLock lock(folder.path(), kPatience);
      ADD_FAILURE() << error;
    } catch (const StoreError& refused) {
      EXPECT_EQ(refused.kind(), ErrorKind::kUnwritable);
      EXPECT_NE(std::string(refused.what()).find(std::strerror(error)), std::string::npos) << refused.what();
    }
    EXPECT_EQ(flock_calls, 1);
  }
}

}  // namespace
}  // namespace sluice::store::test
