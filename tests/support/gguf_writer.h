#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::testing {

/// Writes GGUF images, and ones that lie.
class GgufWriter {
 public:
  uint32_t version = 3;
  size_t alignment = 32;
  std::optional<uint64_t> claimed_tensors;  // in place of how many there are
  std::optional<uint64_t> claimed_keys;

  void put(const std::string& key, uint32_t value);
  void put(const std::string& key, float value);
  void put(const std::string& key, bool value);
  void put(const std::string& key, std::string_view value);
  void put(const std::string& key, const char* value) { put(key, std::string_view(value)); }
  void put(const std::string& key, const std::vector<std::string>& values);
  void put(const std::string& key, const std::vector<int32_t>& values);
  /// A value of any type, already in bytes.
  void put_bytes(const std::string& key, uint32_t type, const std::string& bytes);
  void drop(const std::string& key);

  /// `shape` has its slowest axis first; `type` is GGUF's number.
  void add(const std::string& name, const std::vector<uint64_t>& shape, uint32_t type, const std::string& bytes);
  void add(const std::string& name, const std::vector<uint64_t>& shape, std::span<const float> values);
  /// Where a tensor says that it begins, in place of where it does.
  void claim_offset(const std::string& name, uint64_t offset);
  void drop_tensor(const std::string& name);

  std::string image() const;
  void write(const std::string& path) const;

 private:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> shape;
    uint32_t type;
    std::string bytes;
    std::optional<uint64_t> offset;
  };

  std::vector<std::pair<std::string, std::string>> values_;  // a key, and its type and value
  std::vector<Tensor> tensors_;
};

/// A number as GGUF has it.
template <typename T>
std::string little_endian(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace sluice::testing
