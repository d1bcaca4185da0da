#include "store/folder/system_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace sluice::store {

ErrorKind kind_of_system_error(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ErrorKind::kFull;
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EINVAL:
    case EEXIST:
    case ELOOP:
    case ENXIO:
      return ErrorKind::kCorrupted;
    default:
      return ErrorKind::kUnwritable;
  }
}

std::string hint_of_system_error(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
      return "may this user read and write there, is the disk mounted read-only?";
    case EMFILE:
    case ENFILE:
      return "more files are open than the machine allows (ulimit -n): nothing is damaged, raise the limit and try again";
    case ENOMEM:
    case ENOLCK:
      return "the machine has no memory left: nothing is damaged, try again later";
    case EIO:
      return "the disk fails: copy the data folder to another one; lineage.git may be left out, since it is made anew";
    default:
      return kind_of_system_error(error) == ErrorKind::kFull ? "the disk is full: free some space and start again" : "";
  }
}

void throw_system_error(const std::string& doing, int error) {
  throw StoreError(kind_of_system_error(error), fmt::format("cannot {}: {}", doing, std::strerror(error)),
                   hint_of_system_error(error));
}

}  // namespace sluice::store
