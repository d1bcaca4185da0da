#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sluice::store {

// What is on the disk. Everything here throws StoreError (kUnwritable) for what the machine lacks or refuses: descriptors,
// memory, permission. Only what is truly missing, or of another kind, counts as such.

/// Follows links. `not_found` where nothing is, and for a link to nothing.
std::filesystem::file_type type_of(const std::filesystem::path& path);
/// Whether there is anything, a link to nothing included.
bool is_there(const std::filesystem::path& path);
/// What is in a folder; nothing if there is no such folder.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

/// Takes away a file, or a folder with all that is in it; nothing if it is not there. Throws kFull, too, as `rename` does.
void remove_all(const std::filesystem::path& path);
void rename(const std::filesystem::path& from, const std::filesystem::path& to);

/// Throws unless this process can open `count` files more, for callers of what would take another one for missing.
void require_descriptors(size_t count);

/// A regular file, read from its first byte to its last.
class FileReader {
 public:
  /// Nothing if no regular file is there.
  static std::optional<FileReader> open(const std::filesystem::path& path);
  ~FileReader();
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&&) = delete;

  /// Bytes, when it was opened.
  uint64_t size() const { return size_; }
  /// Bytes that were read into `to`: `most`, or fewer at the end.
  size_t read(char* to, size_t most);
  /// All that is left.
  std::string rest();
  /// What is read next, counted from the first byte.
  void seek(uint64_t position);

 private:
  FileReader(int file, uint64_t size, std::filesystem::path path);

  int file_ = -1;
  uint64_t size_ = 0;
  std::filesystem::path path_;
};

}  // namespace sluice::store
