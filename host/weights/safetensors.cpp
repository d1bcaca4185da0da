#include "host/weights/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "host/weights/half.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

struct TypeRow {
  StoredType type;
  std::string_view name;
  size_t bytes;
};

constexpr std::array kTypes = {
    TypeRow{StoredType::kBool, "BOOL", 1}, TypeRow{StoredType::kU8, "U8", 1},          TypeRow{StoredType::kI8, "I8", 1},
    TypeRow{StoredType::kU16, "U16", 2},   TypeRow{StoredType::kI16, "I16", 2},        TypeRow{StoredType::kF16, "F16", 2},
    TypeRow{StoredType::kBF16, "BF16", 2}, TypeRow{StoredType::kU32, "U32", 4},        TypeRow{StoredType::kI32, "I32", 4},
    TypeRow{StoredType::kF32, "F32", 4},   TypeRow{StoredType::kU64, "U64", 8},        TypeRow{StoredType::kI64, "I64", 8},
    TypeRow{StoredType::kF64, "F64", 8},   TypeRow{StoredType::kF8E4M3, "F8_E4M3", 1}, TypeRow{StoredType::kF8E5M2, "F8_E5M2", 1},
};

// The limit of the format's own implementation.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxRank = 16;

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
  throw InputError(fmt::format("{}: {}", file, what),
                   "the file is damaged or is not a safetensors file; fetch or write it again");
}

[[noreturn]] void refuse_tensor(const std::string& file, const std::string& tensor, const std::string& what) {
  refuse(file, fmt::format("tensor {}: {}", excerpt(tensor), what));
}

// JSON whose top-level keys are unique: a reader that kept one of two equal names would depend on their order.
Json parse_header(std::string_view text, const std::string& file) {
  constexpr int kDeepest = 8;  // a tensor's extents lie three levels deep
  std::set<std::string> names;
  const auto check_key = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kDeepest) refuse(file, fmt::format("the header is nested more than {} levels deep", kDeepest));
    if (event == Json::parse_event_t::key && depth == 1 && !names.insert(value.get<std::string>()).second) {
      refuse_tensor(file, value.get<std::string>(), "appears twice in the header");
    }
    return true;
  };
  try {
    Json header = Json::parse(text.begin(), text.end(), check_key);
    if (!header.is_object()) refuse(file, "the header is not a JSON object");
    return header;
  } catch (const Json::exception& error) {
    refuse(file, fmt::format("the header is not valid JSON ({})", reason_of(error)));
  }
}

uint64_t unsigned_of(const Json& value, const std::string& file, const std::string& tensor, std::string_view key) {
  if (!value.is_number_unsigned()) refuse_tensor(file, tensor, fmt::format("\"{}\" holds something that is not a count", key));
  return value.get<uint64_t>();
}

const Json& member(const Json& object, const char* key, Json::value_t type, const std::string& file, const std::string& tensor) {
  const auto found = object.find(key);
  if (found == object.end()) refuse_tensor(file, tensor, fmt::format("\"{}\" is missing", key));
  if (found->type() != type) refuse_tensor(file, tensor, fmt::format("\"{}\" has the wrong type", key));
  return *found;
}

StoredTensor parse_tensor(const std::string& name, const Json& entry, std::span<const std::byte> data, const std::string& file) {
  if (!entry.is_object()) refuse_tensor(file, name, "its entry is not an object");
  StoredTensor tensor;
  tensor.name = name;

  const auto& type_name = member(entry, "dtype", Json::value_t::string, file, name).get_ref<const std::string&>();
  const auto row = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& type) { return type.name == type_name; });
  if (row == kTypes.end()) refuse_tensor(file, name, fmt::format("unknown dtype {}", excerpt(type_name)));
  tensor.type = row->type;

  const Json& shape = member(entry, "shape", Json::value_t::array, file, name);
  if (shape.size() > kMaxRank) refuse_tensor(file, name, fmt::format("has {} dimensions", shape.size()));
  uint64_t bytes = row->bytes;
  for (const Json& value : shape) {
    const uint64_t extent = unsigned_of(value, file, name, "shape");
    constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (extent > kMax || (extent != 0 && bytes > kMax / extent)) refuse_tensor(file, name, "its shape overflows");
    bytes *= extent;
    tensor.shape.push_back(static_cast<int64_t>(extent));
  }

  const Json& offsets = member(entry, "data_offsets", Json::value_t::array, file, name);
  if (offsets.size() != 2) refuse_tensor(file, name, "\"data_offsets\" needs two numbers");
  const uint64_t begin = unsigned_of(offsets[0], file, name, "data_offsets");
  const uint64_t end = unsigned_of(offsets[1], file, name, "data_offsets");
  if (begin > end) refuse_tensor(file, name, fmt::format("ends ({}) before it begins ({})", end, begin));
  if (end > data.size()) {
    refuse_tensor(file, name, fmt::format("ends at byte {}, but the file holds {} bytes of data", end, data.size()));
  }
  if (end - begin != bytes) {
    refuse_tensor(
        file, name,
        fmt::format("{} {} takes {} bytes, but its offsets span {}", type_name, tensor.shape_text(), bytes, end - begin));
  }
  tensor.bytes = data.subspan(begin, bytes);
  return tensor;
}

// Tensors follow each other without gaps or overlaps and reach the end of the file.
void check_coverage(const std::map<std::string, StoredTensor>& tensors, std::span<const std::byte> data,
                    const std::string& file) {
  std::vector<const StoredTensor*> order;
  for (const auto& [name, tensor] : tensors) order.push_back(&tensor);
  const auto begin_of = [&](const StoredTensor* tensor) { return static_cast<size_t>(tensor->bytes.data() - data.data()); };
  std::sort(order.begin(), order.end(), [&](const StoredTensor* a, const StoredTensor* b) {
    return std::pair(begin_of(a), a->bytes.size()) < std::pair(begin_of(b), b->bytes.size());
  });
  size_t position = 0;
  for (const StoredTensor* tensor : order) {
    const size_t begin = begin_of(tensor);
    if (begin < position) refuse_tensor(file, tensor->name, fmt::format("overlaps the tensor before it (byte {})", begin));
    if (begin > position)
      refuse_tensor(file, tensor->name, fmt::format("leaves bytes {} to {} without an owner", position, begin));
    position = begin + tensor->bytes.size();
  }
  if (position != data.size()) refuse(file, fmt::format("{} bytes at the end belong to no tensor", data.size() - position));
}

template <typename T>
T load(std::span<const std::byte> bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

size_t size_of(StoredType type) {
  return std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& row) { return row.type == type; })->bytes;
}

std::string_view name_of(StoredType type) {
  return std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& row) { return row.type == type; })->name;
}

int64_t StoredTensor::elements() const { return static_cast<int64_t>(bytes.size() / size_of(type)); }

std::string StoredTensor::shape_text() const { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::vector<float> StoredTensor::to_f32() const {
  std::vector<float> values(static_cast<size_t>(elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (type) {
      case StoredType::kF32:
        values[i] = load<float>(bytes, i);
        break;
      case StoredType::kF64:
        values[i] = static_cast<float>(load<double>(bytes, i));
        break;
      case StoredType::kBF16:
        values[i] = float_from_bf16(load<uint16_t>(bytes, i));
        break;
      case StoredType::kF16:
        values[i] = float_from_f16(load<uint16_t>(bytes, i));
        break;
      default:
        throw InputError(fmt::format("tensor {} has dtype {}; F32, F16, BF16 or F64 is wanted", excerpt(name), name_of(type)));
    }
  }
  return values;
}

std::map<std::string, StoredTensor> parse_safetensors(std::span<const std::byte> image, const std::string& name) {
  static_assert(std::endian::native == std::endian::little, "the format is little-endian");
  if (image.size() < kLengthBytes) refuse(name, fmt::format("truncated: {} bytes, too short for a header", image.size()));
  const auto length = load<uint64_t>(image, 0);
  if (length > kMaxHeaderBytes)
    refuse(name, fmt::format("claims a header of {} bytes; the format allows {}", length, kMaxHeaderBytes));
  if (length > image.size() - kLengthBytes) {
    refuse(name, fmt::format("truncated: claims a header of {} bytes, but {} follow", length, image.size() - kLengthBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(image.data()) + kLengthBytes, length);
  const std::span<const std::byte> data = image.subspan(kLengthBytes + length);
  const Json header = parse_header(text, name);

  std::map<std::string, StoredTensor> tensors;
  for (const auto& [key, entry] : header.items()) {
    if (key != "__metadata__") tensors.emplace(key, parse_tensor(key, entry, data, name));
  }
  check_coverage(tensors, data, name);
  return tensors;
}

SafetensorsFile::SafetensorsFile(std::string path, MappedFile file)
    : path_(std::move(path)), file_(std::move(file)), tensors_(parse_safetensors(file_.bytes(), path_)) {}

SafetensorsFile SafetensorsFile::open(const std::string& path) { return {path, MappedFile(path)}; }

const StoredTensor* SafetensorsFile::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const StoredTensor& SafetensorsFile::at(const std::string& name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  std::vector<std::string> names;
  for (const auto& [key, tensor] : tensors_) {
    names.push_back(excerpt(key));
    if (names.size() == 8) break;
  }
  throw InputError(fmt::format("{}: tensor {} is missing", path_, excerpt(name)),
                   fmt::format("it holds {}", fmt::join(names, ", ")));
}

Checkpoint Checkpoint::open(const std::string& directory) {
  namespace fs = std::filesystem;
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  const std::string single = (fs::path(directory) / "model.safetensors").string();
  const std::string index_path = (fs::path(directory) / "model.safetensors.index.json").string();
  std::error_code error;
  if (!fs::exists(index_path, error) && !error) {
    checkpoint.files_.push_back(SafetensorsFile::open(single));
    return checkpoint;
  }

  const Json index = parse_json(read_text_file(index_path), index_path);
  const JsonObject map = JsonObject(index, index_path).object("weight_map");
  std::map<std::string, size_t> opened;  // file name -> position in files_
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string()) throw InputError(fmt::format("{}: weight_map[{}] is not a file name", index_path, excerpt(tensor)));
    const auto& file_name = file.get_ref<const std::string&>();
    if (fs::path(file_name).filename() != file_name) {  // the directory is all that a model may name
      throw InputError(
          fmt::format("{}: weight_map[{}] is {}, not a plain file name", index_path, excerpt(tensor), excerpt(file_name)));
    }
    const auto [position, is_new] = opened.try_emplace(file_name, checkpoint.files_.size());
    if (is_new) checkpoint.files_.push_back(SafetensorsFile::open((fs::path(directory) / file_name).string()));
    if (checkpoint.files_[position->second].find(tensor) == nullptr) {
      throw InputError(
          fmt::format("{}: says that {} holds tensor {}, which it does not", index_path, excerpt(file_name), excerpt(tensor)));
    }
  }
  std::set<std::string> names;
  for (const SafetensorsFile& file : checkpoint.files_) {
    for (const auto& [name, tensor] : file.tensors()) {
      if (!names.insert(name).second) throw InputError(fmt::format("{}: tensor {} is in two files", index_path, excerpt(name)));
    }
  }
  return checkpoint;
}

const StoredTensor* Checkpoint::find(const std::string& name) const {
  for (const SafetensorsFile& file : files_) {
    if (const StoredTensor* tensor = file.find(name)) return tensor;
  }
  return nullptr;
}

std::vector<const StoredTensor*> Checkpoint::tensors() const {
  std::vector<const StoredTensor*> all;
  for (const SafetensorsFile& file : files_) {
    for (const auto& [name, tensor] : file.tensors()) all.push_back(&tensor);
  }
  return all;
}

const StoredTensor& Checkpoint::at(const std::string& name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  throw InputError(fmt::format("{}: tensor {} is missing from the weights", directory_, excerpt(name)),
                   "the weights must match the architecture that config.json names");
}

}  // namespace sluice
