#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "host/weights/gguf.h"
#include "host/weights/safetensors.h"
#include "host/weights/stored_tensor.h"

namespace sluice {

/// The weights of a model under Hugging Face's names: of a directory, `model.safetensors` or the files that
/// `model.safetensors.index.json` names; or of a GGUF file.
class Checkpoint {
 public:
  /// Throws InputError naming the file or tensor at fault.
  static Checkpoint open(const std::string& model);

  /// Null if there is no such tensor.
  const StoredTensor* find(const std::string& name) const;
  /// Throws InputError naming the model if there is no such tensor.
  const StoredTensor& at(const std::string& name) const;
  /// Every tensor of every file, by name.
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  const std::string& model() const { return model_; }
  /// Where the model's shape is written: "config.json", or "the metadata" of a GGUF file.
  const char* configuration() const { return gguf_ ? "the metadata" : "config.json"; }
  /// Null for a directory.
  const Gguf* gguf() const { return gguf_ ? &gguf_->contents() : nullptr; }

 private:
  void open_directory();
  void open_index(const std::string& path);

  std::string model_;
  std::vector<SafetensorsFile> files_;
  std::optional<GgufFile> gguf_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace sluice
