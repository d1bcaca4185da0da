#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice {

/// Collects tensors in memory and writes them as one `.safetensors` file, in the order in which they were added.
/// Format: https://huggingface.co/docs/safetensors.
class SafetensorsWriter {
 public:
  /// Copies `values`. Throws InternalError if the shape does not hold that many, or the name is taken.
  void add(const std::string& name, const std::vector<int64_t>& shape, std::span<const float> values);
  void add(const std::string& name, const std::vector<int64_t>& shape, std::span<const int32_t> values);
  /// As BF16: each to the nearest, ties to even.
  void add_bf16(const std::string& name, const std::vector<int64_t>& shape, std::span<const float> values);

  /// Throws InputError if the file cannot be written.
  void write(const std::string& path) const;

 private:
  struct Entry {
    std::string name;
    std::string type;  // "F32", "I32", "BF16"
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };

  /// `bytes`: of all elements, each of `element` bytes.
  void add(const std::string& name, const char* type, size_t element, const std::vector<int64_t>& shape,
           std::span<const std::byte> bytes);

  std::vector<Entry> entries_;
};

}  // namespace sluice
