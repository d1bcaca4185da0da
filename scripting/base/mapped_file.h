#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace sluice {

/// A file mapped read-only into memory; unmapped with this object.
class MappedFile {
 public:
  /// Throws InputError if the file cannot be opened or mapped, ResourceError if the machine lacks what that takes.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// The whole of a text file. Throws InputError if it cannot be read or is larger than `limit` bytes, ResourceError if the
/// machine lacks what that takes.
std::string read_text_file(const std::string& path, size_t limit = size_t{256} << 20);

}  // namespace sluice
