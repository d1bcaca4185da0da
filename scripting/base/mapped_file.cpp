#include "scripting/base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "scripting/base/error.h"
#include "scripting/base/resource_error.h"

namespace sluice {
namespace {

/// `doing` starts with the path.
[[noreturn]] void refuse(const std::string& doing, int error, const std::string& hint = {}) {
  if (is_lack(error)) throw_system_error(doing, error);
  throw InputError(fmt::format("{}: {}", doing, std::strerror(error)), hint);
}

class FileDescriptor {
 public:
  // Without O_NONBLOCK a named pipe would wait for its writer for ever; regular files do not care.
  explicit FileDescriptor(const std::string& path) : value_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (value_ < 0) refuse(path, errno, "check the path and its permissions");
  }
  ~FileDescriptor() { ::close(value_); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

size_t size_of_regular_file(const FileDescriptor& file, const std::string& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) refuse(path, errno);
  if (!S_ISREG(status.st_mode)) throw InputError(fmt::format("{}: not a regular file", path));
  return static_cast<size_t>(status.st_size);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const FileDescriptor file(path);
  size_ = size_of_regular_file(file, path);
  if (size_ == 0) return;  // an empty mapping is an error to mmap
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) refuse(path + ": cannot map", errno);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::string read_text_file(const std::string& path, size_t limit) {
  const FileDescriptor file(path);
  const size_t size = size_of_regular_file(file, path);
  if (size > limit) throw InputError(fmt::format("{}: {} bytes, more than the {} that such a file may have", path, size, limit));
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(file.get(), text.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(path, errno);
    if (count == 0) break;  // it shrank meanwhile
    done += static_cast<size_t>(count);
  }
  text.resize(done);
  return text;
}

}  // namespace sluice
