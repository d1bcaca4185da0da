#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/weights/gguf_cursor.h"

namespace sluice {

/// Types of values in the metadata of GGUF files, by their numbers.
enum class GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kText, kArray, kU64, kI64, kF64 };

/// The metadata of a GGUF file, read with types and ranges checked, as JsonObject does for JSON. Every method throws InputError
/// naming the file, the key and what is wanted. Refers to the file, which must outlive it.
class GgufMetadata {
 public:
  GgufMetadata() = default;
  /// Reads `count` pairs of a key and a value. Every length within them is checked.
  GgufMetadata(GgufCursor& cursor, uint64_t count);

  bool has(const std::string& key) const { return values_.contains(key); }
  const std::string& file() const { return file_; }

  std::optional<int64_t> find_integer(const std::string& key, int64_t low, int64_t high) const;
  int64_t integer(const std::string& key, int64_t low, int64_t high) const;
  std::optional<double> find_number(const std::string& key, double low, double high) const;
  double number(const std::string& key, double low, double high) const;
  std::optional<bool> find_boolean(const std::string& key) const;
  /// UTF-8.
  std::optional<std::string_view> find_text(const std::string& key) const;
  std::string_view text(const std::string& key) const;
  /// An array of at most `most` strings, all of UTF-8.
  std::vector<std::string_view> texts(const std::string& key, uint64_t most) const;
  /// An array of at most `most` integers.
  std::vector<int64_t> integers(const std::string& key, uint64_t most) const;

  /// Throws InputError about `key`: "FILE: KEY is VALUE; WANTED".
  [[noreturn]] void refuse(const std::string& key, const std::string& wanted, const std::string& hint = {}) const;

 private:
  struct Value {
    GgufType type;  // of the value, or of an array's elements
    bool is_array;
    uint64_t count;                    // of an array
    std::span<const std::byte> bytes;  // of a string without its length; of an array's elements
  };

  static Value read_value(GgufCursor& cursor);
  const Value* find(const std::string& key) const;
  const Value& at(const std::string& key) const;
  /// The elements of an array, one after another. Throws InputError if it is none, or has more.
  void each(const std::string& key, uint64_t most, const std::function<void(GgufCursor&, GgufType)>& take) const;

  std::string file_;
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace sluice
