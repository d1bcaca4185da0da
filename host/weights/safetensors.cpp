#include "host/weights/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

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
  const StoredFormat* format = find_format(type_name);
  if (format == nullptr || format->block_elements != 1) {
    refuse_tensor(file, name, fmt::format("unknown dtype {}", excerpt(type_name)));
  }
  tensor.type = format->type;

  const Json& shape = member(entry, "shape", Json::value_t::array, file, name);
  if (shape.size() > kMaxRank) refuse_tensor(file, name, fmt::format("has {} dimensions", shape.size()));
  uint64_t bytes = format->block_bytes;
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

}  // namespace sluice
