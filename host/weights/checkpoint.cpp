#include "host/weights/checkpoint.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "host/weights/gguf_tensors.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"
#include "scripting/base/mapped_file.h"

namespace sluice {

Checkpoint Checkpoint::open(const std::string& model) {
  Checkpoint checkpoint;
  checkpoint.model_ = model;
  if (is_gguf(model)) {
    checkpoint.tensors_ = huggingface_tensors(checkpoint.gguf_.emplace(model).contents());
  } else {
    checkpoint.open_directory();
  }
  return checkpoint;
}

void Checkpoint::open_directory() {
  namespace fs = std::filesystem;
  const std::string index = (fs::path(model_) / "model.safetensors.index.json").string();
  std::error_code error;
  if (fs::exists(index, error) || error) return open_index(index);
  files_.push_back(SafetensorsFile::open((fs::path(model_) / "model.safetensors").string()));
  tensors_ = files_.front().tensors();
}

void Checkpoint::open_index(const std::string& path) {
  namespace fs = std::filesystem;
  const nlohmann::json index = parse_json(read_text_file(path), path);
  const JsonObject map = JsonObject(index, path).object("weight_map");
  std::map<std::string, size_t> opened;  // file name -> position in files_
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string()) throw InputError(fmt::format("{}: weight_map[{}] is not a file name", path, excerpt(tensor)));
    const auto& file_name = file.get_ref<const std::string&>();
    if (fs::path(file_name).filename() != file_name) {  // the directory is all that a model may name
      throw InputError(fmt::format("{}: weight_map[{}] is {}, not a plain file name", path, excerpt(tensor), excerpt(file_name)));
    }
    const auto [position, is_new] = opened.try_emplace(file_name, files_.size());
    if (is_new) files_.push_back(SafetensorsFile::open((fs::path(model_) / file_name).string()));
    if (files_[position->second].find(tensor) == nullptr) {
      throw InputError(
          fmt::format("{}: says that {} holds tensor {}, which it does not", path, excerpt(file_name), excerpt(tensor)));
    }
  }
  for (const SafetensorsFile& file : files_) {
    for (const auto& [name, tensor] : file.tensors()) {
      if (!tensors_.emplace(name, tensor).second) {
        throw InputError(fmt::format("{}: tensor {} is in two files", path, excerpt(name)));
      }
    }
  }
}

const StoredTensor* Checkpoint::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const StoredTensor& Checkpoint::at(const std::string& name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  throw InputError(fmt::format("{}: tensor {} is missing from the weights", model_, excerpt(name)),
                   fmt::format("the weights must match the architecture that {} names", configuration()));
}

}  // namespace sluice
