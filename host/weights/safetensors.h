#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scripting/base/mapped_file.h"

namespace sluice {

/// Element types of safetensors files.
enum class StoredType : uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kF16,
  kBF16,
  kU32,
  kI32,
  kF32,
  kU64,
  kI64,
  kF64,
  kF8E4M3,
  kF8E5M2
};

/// Bytes of one element.
size_t size_of(StoredType type);
/// "F32", "BF16", ... as the format spells it.
std::string_view name_of(StoredType type);

/// A tensor in a file; `bytes` lies in the mapping of its `SafetensorsFile` and may be unaligned.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;

  int64_t elements() const;
  /// "[2, 3]".
  std::string shape_text() const;
  /// Elements of F32, F16, BF16 or F64 as float32. Throws InputError for other types.
  std::vector<float> to_f32() const;
};

/// The tensors of one `.safetensors` image: a little-endian 64-bit header length, a JSON header, and data that the tensors
/// cover exactly. Format: https://huggingface.co/docs/safetensors. `name` is used in messages. Every claim of the header is
/// checked against the data. Throws InputError naming the file and the tensor.
std::map<std::string, StoredTensor> parse_safetensors(std::span<const std::byte> image, const std::string& name);

/// A memory-mapped `.safetensors` file.
class SafetensorsFile {
 public:
  /// Throws InputError as `parse_safetensors` does, or if the file cannot be read.
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  /// Null if there is no such tensor.
  const StoredTensor* find(const std::string& name) const;
  /// Throws InputError if there is no such tensor.
  const StoredTensor& at(const std::string& name) const;

 private:
  SafetensorsFile(std::string path, MappedFile file);

  std::string path_;
  MappedFile file_;
  std::map<std::string, StoredTensor> tensors_;
};

/// The weights of a model directory: `model.safetensors`, or the files that `model.safetensors.index.json` names.
class Checkpoint {
 public:
  /// Throws InputError naming the file or tensor at fault.
  static Checkpoint open(const std::string& directory);

  /// Null if there is no such tensor.
  const StoredTensor* find(const std::string& name) const;
  /// Throws InputError naming the directory if there is no such tensor.
  const StoredTensor& at(const std::string& name) const;
  /// Every tensor of every file.
  std::vector<const StoredTensor*> tensors() const;
  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
  std::vector<SafetensorsFile> files_;
};

}  // namespace sluice
