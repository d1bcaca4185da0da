#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

/// Throws InputError: the file is damaged, or it is no GGUF file.
[[noreturn]] void refuse_gguf(const std::string& file, const std::string& what);

/// Reads the header of a GGUF file front to back: little-endian numbers, and strings behind their lengths. What is read must lie
/// in `header`; every method throws InputError where it does not.
class GgufCursor {
 public:
  /// `file` is used in messages. `beyond`: bytes of the file behind `header`, as far as a header may reach.
  GgufCursor(std::span<const std::byte> header, std::string file, size_t beyond = 0)
      : header_(header), file_(std::move(file)), beyond_(beyond) {}

  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view text();
  /// A number of things, each of at least `least_bytes`, all of which follow. `what` names them in the plural.
  uint64_t count(size_t least_bytes, std::string_view what);
  std::span<const std::byte> take(uint64_t bytes);

  size_t position() const { return position_; }
  const std::string& file() const { return file_; }

 private:
  std::span<const std::byte> header_;
  std::string file_;
  size_t beyond_;
  size_t position_ = 0;
};

}  // namespace sluice
