#include "host/weights/gguf_metadata.h"

#include <fmt/format.h>

#include "scripting/base/error.h"
#include "scripting/base/json_object.h"
#include "scripting/base/unicode.h"

namespace sluice {
namespace {

constexpr size_t kLeastText = 8;                  // a length
constexpr size_t kLeastArray = 12;                // a type and a length
constexpr size_t kLongestText = size_t{1} << 16;  // of an array

/// 0 for strings and arrays.
size_t size_of_number(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    default:
      return 0;
  }
}

GgufType read_type(GgufCursor& cursor) {
  const auto type = cursor.number<uint32_t>();
  if (type > static_cast<uint32_t>(GgufType::kF64)) {
    refuse_gguf(cursor.file(), fmt::format("unknown type {} of metadata at byte {}", type, cursor.position()));
  }
  return static_cast<GgufType>(type);
}

struct Extent {
  GgufType type;
  uint64_t count;
};

Extent read_extent(GgufCursor& cursor) {
  const GgufType type = read_type(cursor);
  const size_t number = size_of_number(type);
  const size_t least = number != 0 ? number : type == GgufType::kText ? kLeastText : kLeastArray;
  return {type, cursor.count(least, "elements of an array")};
}

/// Steps over the elements of an array.
void skip_elements(GgufCursor& cursor, const Extent& extent, int depth) {
  constexpr int kDeepest = 4;
  if (depth > kDeepest) refuse_gguf(cursor.file(), fmt::format("metadata is nested more than {} levels deep", kDeepest));
  if (const size_t number = size_of_number(extent.type); number != 0) {
    cursor.take(extent.count * number);
    return;
  }
  for (uint64_t i = 0; i < extent.count; ++i) {
    if (extent.type == GgufType::kText) {
      cursor.text();
    } else {
      skip_elements(cursor, read_extent(cursor), depth + 1);
    }
  }
}

/// nullopt if it is no integer, or none of 64 bits with a sign.
std::optional<int64_t> integer_of(GgufCursor& cursor, GgufType type) {
  switch (type) {
    case GgufType::kU8:
      return cursor.number<uint8_t>();
    case GgufType::kI8:
      return cursor.number<int8_t>();
    case GgufType::kU16:
      return cursor.number<uint16_t>();
    case GgufType::kI16:
      return cursor.number<int16_t>();
    case GgufType::kU32:
      return cursor.number<uint32_t>();
    case GgufType::kI32:
      return cursor.number<int32_t>();
    case GgufType::kI64:
      return cursor.number<int64_t>();
    case GgufType::kU64: {
      const auto value = cursor.number<uint64_t>();
      return value <= uint64_t{INT64_MAX} ? std::optional(static_cast<int64_t>(value)) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> number_of(GgufCursor& cursor, GgufType type) {
  if (type == GgufType::kF32) return cursor.number<float>();
  if (type == GgufType::kF64) return cursor.number<double>();
  if (const auto integer = integer_of(cursor, type)) return static_cast<double>(*integer);
  return std::nullopt;
}

std::string_view as_text(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

GgufMetadata::GgufMetadata(GgufCursor& cursor, uint64_t count) : file_(cursor.file()) {
  for (uint64_t i = 0; i < count; ++i) {
    const std::string key(cursor.text());
    if (!values_.emplace(key, read_value(cursor)).second) {
      refuse_gguf(file_, fmt::format("the key {} appears twice in the metadata", excerpt(key)));
    }
  }
}

GgufMetadata::Value GgufMetadata::read_value(GgufCursor& cursor) {
  const GgufType type = read_type(cursor);
  if (type == GgufType::kText) return {type, false, 0, std::as_bytes(std::span(cursor.text()))};
  if (type != GgufType::kArray) return {type, false, 0, cursor.take(size_of_number(type))};
  const Extent extent = read_extent(cursor);
  GgufCursor ahead = cursor;
  skip_elements(ahead, extent, 1);
  return {extent.type, true, extent.count, cursor.take(ahead.position() - cursor.position())};
}

const GgufMetadata::Value* GgufMetadata::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

const GgufMetadata::Value& GgufMetadata::at(const std::string& key) const {
  if (const Value* value = find(key)) return *value;
  throw InputError(fmt::format("{}: {} is missing from the metadata", file_, key));
}

void GgufMetadata::refuse(const std::string& key, const std::string& wanted, const std::string& hint) const {
  const Value& value = at(key);
  std::string text;
  GgufCursor cursor(value.bytes, file_);
  if (value.is_array) {
    text = fmt::format("an array of {}", value.count);
  } else if (value.type == GgufType::kText) {
    text = excerpt(std::string(as_text(value.bytes)));
  } else if (value.type == GgufType::kBool) {
    text = value.bytes[0] == std::byte{0} ? "false" : "true";
  } else if (const auto number = number_of(cursor, value.type)) {
    text = fmt::format("{}", *number);
    const bool is_whole = text.find_first_not_of("-0123456789") == std::string::npos;
    if (is_whole && (value.type == GgufType::kF32 || value.type == GgufType::kF64)) text += ".0";
  } else {
    text = "a number of over 63 bits";
  }
  throw InputError(fmt::format("{}: {} is {}; {}", file_, key, text, wanted), hint);
}

std::optional<int64_t> GgufMetadata::find_integer(const std::string& key, int64_t low, int64_t high) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  GgufCursor cursor(value->bytes, file_);
  const auto integer = value->is_array ? std::nullopt : integer_of(cursor, value->type);
  if (!integer || *integer < low || *integer > high) refuse(key, fmt::format("an integer from {} to {} is wanted", low, high));
  return integer;
}

int64_t GgufMetadata::integer(const std::string& key, int64_t low, int64_t high) const {
  at(key);
  return *find_integer(key, low, high);
}

std::optional<double> GgufMetadata::find_number(const std::string& key, double low, double high) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  GgufCursor cursor(value->bytes, file_);
  const auto number = value->is_array ? std::nullopt : number_of(cursor, value->type);
  if (!number || !(*number >= low && *number <= high)) refuse(key, fmt::format("a number from {} to {} is wanted", low, high));
  return number;
}

double GgufMetadata::number(const std::string& key, double low, double high) const {
  at(key);
  return *find_number(key, low, high);
}

std::optional<bool> GgufMetadata::find_boolean(const std::string& key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_array || value->type != GgufType::kBool || std::to_integer<int>(value->bytes[0]) > 1) {
    refuse(key, "true or false is wanted");
  }
  return value->bytes[0] != std::byte{0};
}

std::optional<std::string_view> GgufMetadata::find_text(const std::string& key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::string_view text = as_text(value->bytes);
  if (value->is_array || value->type != GgufType::kText || valid_utf8(text) != text) refuse(key, "a text in UTF-8 is wanted");
  return text;
}

std::string_view GgufMetadata::text(const std::string& key) const {
  at(key);
  return *find_text(key);
}

void GgufMetadata::each(const std::string& key, uint64_t most, const std::function<void(GgufCursor&, GgufType)>& take) const {
  const Value& value = at(key);
  if (!value.is_array) refuse(key, "an array is wanted");
  if (value.count > most) refuse(key, fmt::format("at most {} are wanted", most));
  GgufCursor cursor(value.bytes, file_);
  for (uint64_t i = 0; i < value.count; ++i) take(cursor, value.type);
}

std::vector<std::string_view> GgufMetadata::texts(const std::string& key, uint64_t most) const {
  std::vector<std::string_view> texts;
  each(key, most, [&](GgufCursor& cursor, GgufType type) {
    if (type != GgufType::kText) refuse(key, "an array of texts is wanted");
    texts.push_back(cursor.text());
    if (texts.back().size() > kLongestText) {
      throw InputError(fmt::format("{}: {}[{}] has {} bytes; at most {} are wanted", file_, key, texts.size() - 1,
                                   texts.back().size(), kLongestText));
    }
    if (valid_utf8(texts.back()) == texts.back()) return;
    throw InputError(
        fmt::format("{}: {}[{}] is {}, which is no UTF-8", file_, key, texts.size() - 1, excerpt(std::string(texts.back()))));
  });
  return texts;
}

std::vector<int64_t> GgufMetadata::integers(const std::string& key, uint64_t most) const {
  std::vector<int64_t> integers;
  each(key, most, [&](GgufCursor& cursor, GgufType type) {
    const auto integer = integer_of(cursor, type);
    if (!integer) refuse(key, "an array of integers is wanted");
    integers.push_back(*integer);
  });
  return integers;
}

}  // namespace sluice
