#include "tests/support/gguf_writer.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace sluice::testing {
namespace {

constexpr uint32_t kU32 = 4;
constexpr uint32_t kI32 = 5;
constexpr uint32_t kF32 = 6;
constexpr uint32_t kBool = 7;
constexpr uint32_t kText = 8;
constexpr uint32_t kArray = 9;

std::string text(std::string_view value) { return little_endian(uint64_t{value.size()}) + std::string(value); }

std::string array(uint32_t type, size_t count) { return little_endian(type) + little_endian(uint64_t{count}); }

std::string padded(std::string bytes, size_t alignment) {
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
  return bytes;
}

}  // namespace

void GgufWriter::put(const std::string& key, uint32_t value) { put_bytes(key, kU32, little_endian(value)); }
void GgufWriter::put(const std::string& key, float value) { put_bytes(key, kF32, little_endian(value)); }
void GgufWriter::put(const std::string& key, bool value) { put_bytes(key, kBool, std::string(1, value ? '\1' : '\0')); }
void GgufWriter::put(const std::string& key, std::string_view value) { put_bytes(key, kText, text(value)); }

void GgufWriter::put(const std::string& key, const std::vector<std::string>& values) {
  std::string bytes = array(kText, values.size());
  for (const std::string& value : values) bytes += text(value);
  put_bytes(key, kArray, bytes);
}

void GgufWriter::put(const std::string& key, const std::vector<int32_t>& values) {
  std::string bytes = array(kI32, values.size());
  for (const int32_t value : values) bytes += little_endian(value);
  put_bytes(key, kArray, bytes);
}

void GgufWriter::put_bytes(const std::string& key, uint32_t type, const std::string& bytes) {
  const auto found = std::find_if(values_.begin(), values_.end(), [&](const auto& value) { return value.first == key; });
  std::string& value = found != values_.end() ? found->second : values_.emplace_back(key, "").second;
  value = little_endian(type) + bytes;
}

void GgufWriter::drop(const std::string& key) {
  std::erase_if(values_, [&](const auto& value) { return value.first == key; });
}

void GgufWriter::add(const std::string& name, const std::vector<uint64_t>& shape, uint32_t type, const std::string& bytes) {
  tensors_.push_back({name, shape, type, bytes, std::nullopt});
}

void GgufWriter::add(const std::string& name, const std::vector<uint64_t>& shape, std::span<const float> values) {
  add(name, shape, 0, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

void GgufWriter::claim_offset(const std::string& name, uint64_t offset) {
  for (Tensor& tensor : tensors_) {
    if (tensor.name == name) tensor.offset = offset;
  }
}

void GgufWriter::drop_tensor(const std::string& name) {
  std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
}

std::string GgufWriter::image() const {
  std::string header = "GGUF" + little_endian(version) + little_endian(claimed_tensors.value_or(tensors_.size())) +
                       little_endian(claimed_keys.value_or(values_.size()));
  for (const auto& [key, value] : values_) header += text(key) + value;
  std::string data;
  for (const Tensor& tensor : tensors_) {
    header += text(tensor.name) + little_endian(static_cast<uint32_t>(tensor.shape.size()));
    for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent) header += little_endian(*extent);
    header += little_endian(tensor.type) + little_endian(tensor.offset.value_or(data.size()));
    data = padded(data + tensor.bytes, alignment);
  }
  return padded(header, alignment) + data;
}

void GgufWriter::write(const std::string& path) const {
  std::ofstream file(path, std::ios::binary);
  if (!(file << image())) throw std::runtime_error("cannot write " + path);
}

}  // namespace sluice::testing
