#include "store/folder/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "store/folder/system_error.h"

namespace sluice::store {

namespace {

namespace fs = std::filesystem;

/// Throws unless the error is the file's: then it is none that can be read.
void require_fault_of_file(const std::string& doing, const fs::path& path, int error) {
  if (kind_of_system_error(error) != ErrorKind::kCorrupted) throw_system_error(doing + " " + path.string(), error);
}

[[noreturn]] void refuse_change(const std::string& doing, int error) {
  const bool is_full = kind_of_system_error(error) == ErrorKind::kFull;
  throw StoreError(is_full ? ErrorKind::kFull : ErrorKind::kUnwritable, fmt::format("cannot {}: {}", doing, std::strerror(error)),
                   hint_of_system_error(error));
}

}  // namespace

fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() != fs::file_type::none) return status.type();
  require_fault_of_file("look at", path, error.value());
  return fs::file_type::not_found;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (status.type() == fs::file_type::none) require_fault_of_file("look at", path, error.value());
  return fs::exists(status);
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) entries.push_back(at->path());
  if (error) require_fault_of_file("read", folder, error.value());
  return entries;
}

void remove_all(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) refuse_change("remove " + path.string(), error.value());
}

void rename(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) refuse_change(fmt::format("rename {} to {}", from.string(), to.string()), error.value());
}

void require_descriptors(size_t count) {
  struct Held {
    std::vector<int> files;
    ~Held() {
      for (const int file : files) ::close(file);
    }
  } held;
  held.files.reserve(count);
  while (held.files.size() < count) {
    const int file = ::open("/", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    if (file < 0) throw_system_error(fmt::format("open {} files more", count), errno);
    held.files.push_back(file);
  }
}

std::optional<FileReader> FileReader::open(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for its writer
  if (file < 0) {
    require_fault_of_file("read", path, errno);
    return std::nullopt;
  }
  FileReader reader(file, 0, path);
  struct stat status {};
  if (::fstat(file, &status) != 0) throw_system_error("look at " + path.string(), errno);
  if (!S_ISREG(status.st_mode)) return std::nullopt;
  reader.size_ = static_cast<uint64_t>(status.st_size);
  return reader;
}

FileReader::FileReader(int file, uint64_t size, fs::path path) : file_(file), size_(size), path_(std::move(path)) {}

FileReader::FileReader(FileReader&& other) noexcept
    : file_(std::exchange(other.file_, -1)), size_(other.size_), path_(std::move(other.path_)) {}

FileReader::~FileReader() {
  if (file_ >= 0) ::close(file_);
}

size_t FileReader::read(char* to, size_t most) {
  size_t count = 0;
  while (count < most) {
    const ssize_t got = ::read(file_, to + count, most - count);
    if (got == 0) break;
    if (got > 0) {
      count += static_cast<size_t>(got);
    } else if (errno != EINTR) {
      throw_system_error("read " + path_.string(), errno);
    }
  }
  return count;
}

std::string FileReader::rest() {
  std::string text;
  std::array<char, 1 << 14> piece{};
  while (const size_t count = read(piece.data(), piece.size())) text.append(piece.data(), count);
  return text;
}

void FileReader::seek(uint64_t position) {
  if (::lseek(file_, static_cast<off_t>(position), SEEK_SET) < 0) throw_system_error("read " + path_.string(), errno);
}

}  // namespace sluice::store
