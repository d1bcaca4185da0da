#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace sluice {

// Messages are little-endian, as are all machines that Sluice runs on.
static_assert(std::endian::native == std::endian::little);

/// Builds a message from numbers and texts.
class WireWriter {
 public:
  template <typename Number>
  void number(Number value) {
    char bytes[sizeof(Number)];
    std::memcpy(bytes, &value, sizeof(Number));
    bytes_.append(bytes, sizeof(Number));
  }
  /// Its length in 4 bytes, then its bytes.
  void text(std::string_view value);

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Takes a message apart that may have been forged. `what` names a part in errors; each function throws InputError if the part is
/// missing, cut or out of its range. Allocates no more than the message is long.
class WireReader {
 public:
  /// `bytes` must outlive the reader.
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename Number>
  Number number(std::string_view what) {
    Number value;
    std::memcpy(&value, take(sizeof(Number), what).data(), sizeof(Number));
    return value;
  }
  int32_t integer(std::string_view what, int32_t lowest, int32_t highest);
  /// Anything but NaN.
  double real(std::string_view what);
  bool flag(std::string_view what);
  size_t count(std::string_view what, size_t most);
  std::string text(std::string_view what, size_t longest);
  /// A value of an enumeration of bytes that begins at 0 and ends with `last`.
  template <typename Enum>
  Enum one_of(std::string_view what, Enum last) {
    const auto value = number<uint8_t>(what);
    if (value > static_cast<uint8_t>(last)) refuse(what, "does not exist");
    return static_cast<Enum>(value);
  }

  /// What is still to be read.
  std::string_view rest() const { return bytes_; }
  /// Refuses bytes behind the end.
  void finish() const;
  [[noreturn]] static void refuse(std::string_view what, std::string_view why);

 private:
  std::string_view take(size_t size, std::string_view what);

  std::string_view bytes_;
};

}  // namespace sluice
