#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "host/weights/gguf_metadata.h"
#include "host/weights/stored_tensor.h"
#include "scripting/base/mapped_file.h"

namespace sluice {

/// What a GGUF image holds; refers to the image, which must outlive it.
struct Gguf {
  std::string name;                   // of the file, for messages
  std::span<const std::byte> header;  // all that stands before the tensors' bytes
  GgufMetadata metadata;
  std::map<std::string, StoredTensor> tensors;  // under the names that the file gives them

  /// Throws InputError if there is no such tensor.
  const StoredTensor& at(const std::string& tensor) const;
};

/// Reads a GGUF image of version 2 or 3: metadata, the tensors' shapes and types, and their bytes. Every claim is checked against
/// the image. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. `name` is used in messages. Throws InputError,
/// also for a model that is split into several files, and for types of tensors that are not known.
Gguf parse_gguf(std::span<const std::byte> image, const std::string& name);

/// A memory-mapped GGUF file.
class GgufFile {
 public:
  /// Throws InputError as `parse_gguf` does, or if the file cannot be read.
  explicit GgufFile(const std::string& path) : file_(path), contents_(parse_gguf(file_.bytes(), path)) {}

  const Gguf& contents() const { return contents_; }

 private:
  MappedFile file_;
  Gguf contents_;
};

/// Whether a model's path means a GGUF file: no directory, and with the suffix .gguf or the format's first four bytes.
bool is_gguf(const std::string& path);

}  // namespace sluice
