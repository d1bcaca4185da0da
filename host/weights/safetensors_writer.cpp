#include "host/weights/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "host/weights/half.h"
#include "scripting/base/error.h"

namespace sluice {

void SafetensorsWriter::add(const std::string& name, const std::vector<int64_t>& shape, std::span<const float> values) {
  add(name, "F32", sizeof(float), shape, std::as_bytes(values));
}

void SafetensorsWriter::add(const std::string& name, const std::vector<int64_t>& shape, std::span<const int32_t> values) {
  add(name, "I32", sizeof(int32_t), shape, std::as_bytes(values));
}

void SafetensorsWriter::add_bf16(const std::string& name, const std::vector<int64_t>& shape, std::span<const float> values) {
  std::vector<uint16_t> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), bf16_from_float);
  add(name, "BF16", sizeof(uint16_t), shape, std::as_bytes(std::span(rounded)));
}

void SafetensorsWriter::add(const std::string& name, const char* type, size_t element, const std::vector<int64_t>& shape,
                            std::span<const std::byte> bytes) {
  auto wanted = static_cast<int64_t>(element);
  for (const int64_t extent : shape) wanted *= extent;
  if (wanted != static_cast<int64_t>(bytes.size())) {
    throw InternalError(fmt::format("safetensors: {} has {} bytes, its shape wants {}", name, bytes.size(), wanted));
  }
  const bool taken = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == name; });
  if (taken) throw InternalError(fmt::format("safetensors: two tensors are called {}", name));
  entries_.push_back({name, type, shape, {bytes.begin(), bytes.end()}});
}

void SafetensorsWriter::write(const std::string& path) const {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  size_t offset = 0;
  for (const Entry& entry : entries_) {
    header[entry.name] = {{"dtype", entry.type}, {"shape", entry.shape}, {"data_offsets", {offset, offset + entry.bytes.size()}}};
    offset += entry.bytes.size();
  }
  std::string text = header.dump();
  // The data begins at a multiple of 8 bytes; the header may end in spaces.
  text.append((8 - text.size() % 8) % 8, ' ');
  unsigned char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(static_cast<uint64_t>(text.size()) >> (8 * i));

  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(length), sizeof length);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const Entry& entry : entries_) {
    file.write(reinterpret_cast<const char*>(entry.bytes.data()), static_cast<std::streamsize>(entry.bytes.size()));
  }
  if (!file.flush()) throw InputError(fmt::format("{}: cannot be written", path), "is the folder there, and is there space?");
}

}  // namespace sluice
