#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "host/weights/stored_tensor.h"
#include "scripting/base/mapped_file.h"

namespace sluice {

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

}  // namespace sluice
