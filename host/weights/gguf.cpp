#include "host/weights/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr size_t kMostHeader = size_t{64} << 20;  // vocabularies of 256,000 tokens take a fifth of it
constexpr uint64_t kMostKeys = 1 << 16;
constexpr uint64_t kMostTensors = 1 << 16;
constexpr uint32_t kMostAxes = 4;
constexpr size_t kLeastKey = 13;     // length, type and one byte
constexpr size_t kLeastTensor = 32;  // length, axes, one extent, type and offset

struct TypeRow {
  uint32_t number;
  StoredType type;
};

constexpr std::array kTypes = {
    TypeRow{0, StoredType::kF32},    TypeRow{1, StoredType::kF16},    TypeRow{2, StoredType::kQ40},
    TypeRow{3, StoredType::kQ41},    TypeRow{6, StoredType::kQ50},    TypeRow{7, StoredType::kQ51},
    TypeRow{8, StoredType::kQ80},    TypeRow{10, StoredType::kQ2K},   TypeRow{11, StoredType::kQ3K},
    TypeRow{12, StoredType::kQ4K},   TypeRow{13, StoredType::kQ5K},   TypeRow{14, StoredType::kQ6K},
    TypeRow{20, StoredType::kIq4Nl}, TypeRow{23, StoredType::kIq4Xs}, TypeRow{30, StoredType::kBF16},
    TypeRow{39, StoredType::kMxfp4},
};

/// Types that GGML has and that are not read, so that a message can tell their names.
struct OtherType {
  uint32_t number;
  std::string_view name;
};

constexpr std::array kOtherTypes = {
    OtherType{9, "Q8_1"},     OtherType{15, "Q8_K"},  OtherType{16, "IQ2_XXS"}, OtherType{17, "IQ2_XS"},
    OtherType{18, "IQ3_XXS"}, OtherType{19, "IQ1_S"}, OtherType{21, "IQ3_S"},   OtherType{22, "IQ2_S"},
    OtherType{24, "I8"},      OtherType{25, "I16"},   OtherType{26, "I32"},     OtherType{27, "I64"},
    OtherType{28, "F64"},     OtherType{29, "IQ1_M"}, OtherType{34, "TQ1_0"},   OtherType{35, "TQ2_0"},
};

[[noreturn]] void refuse_tensor(const std::string& file, const std::string& tensor, const std::string& what) {
  refuse_gguf(file, fmt::format("tensor {}: {}", excerpt(tensor), what));
}

const StoredFormat& format_of_number(uint32_t number, const std::string& file, const std::string& tensor) {
  const auto* const row =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& known) { return known.number == number; });
  if (row != kTypes.end()) return format_of(row->type);
  const auto* const other =
      std::find_if(kOtherTypes.begin(), kOtherTypes.end(), [&](const OtherType& known) { return known.number == number; });
  std::string name = std::to_string(number);
  if (other != kOtherTypes.end()) name += fmt::format(" ({})", other->name);
  throw InputError(fmt::format("{}: tensor {} is of type {}, which is not read", file, excerpt(tensor), name),
                   "supported are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4");
}

/// A tensor whose bytes are not known yet.
struct TensorClaim {
  StoredTensor tensor;
  uint64_t offset;
  uint64_t bytes;
};

TensorClaim read_claim(GgufCursor& cursor) {
  TensorClaim claim{};
  StoredTensor& tensor = claim.tensor;
  tensor.name = cursor.text();
  const auto axes = cursor.number<uint32_t>();
  if (axes < 1 || axes > kMostAxes) refuse_tensor(cursor.file(), tensor.name, fmt::format("has {} dimensions", axes));
  uint64_t elements = 1;
  for (uint32_t i = 0; i < axes; ++i) {
    constexpr auto kMost = uint64_t{1} << 56;  // so that bytes do not overflow, either
    const auto extent = cursor.number<uint64_t>();
    if (extent == 0) refuse_tensor(cursor.file(), tensor.name, "has no elements");
    if (extent > kMost / elements) refuse_tensor(cursor.file(), tensor.name, "its shape overflows");
    elements *= extent;
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(extent));
  }
  const StoredFormat& format = format_of_number(cursor.number<uint32_t>(), cursor.file(), tensor.name);
  tensor.type = format.type;
  if (static_cast<uint64_t>(tensor.shape.back()) % format.block_elements != 0) {
    refuse_tensor(cursor.file(), tensor.name,
                  fmt::format("rows of {} elements are no whole blocks of {}, which have {}", tensor.shape.back(), format.name,
                              format.block_elements));
  }
  claim.bytes = elements / format.block_elements * format.block_bytes;
  claim.offset = cursor.number<uint64_t>();
  return claim;
}

/// Gives a tensor its bytes among those of the file's tensors.
void place(TensorClaim& claim, std::span<const std::byte> data, size_t alignment, const std::string& file) {
  const std::string& name = claim.tensor.name;
  if (claim.offset % alignment != 0) {
    refuse_tensor(file, name, fmt::format("begins at byte {}, which is no multiple of {}", claim.offset, alignment));
  }
  if (claim.offset > data.size() || claim.bytes > data.size() - claim.offset) {
    refuse_tensor(file, name,
                  fmt::format("takes {} bytes from byte {} on, but the file holds {} bytes of tensors", claim.bytes, claim.offset,
                              data.size()));
  }
  claim.tensor.bytes = data.subspan(claim.offset, claim.bytes);
}

void refuse_overlaps(std::vector<TensorClaim>& claims, const std::string& file) {
  std::sort(claims.begin(), claims.end(),
            [](const TensorClaim& left, const TensorClaim& right) { return left.offset < right.offset; });
  for (size_t i = 1; i < claims.size(); ++i) {
    const TensorClaim& before = claims[i - 1];
    if (before.offset + before.bytes > claims[i].offset) {
      refuse_tensor(file, claims[i].tensor.name,
                    fmt::format("overlaps tensor {} (byte {})", excerpt(before.tensor.name), claims[i].offset));
    }
  }
}

void check_version(uint32_t version, const std::string& name) {
  if (version == 2 || version == 3) return;
  if ((version & 0xffffU) == 0 && version != 0) {
    throw InputError(fmt::format("{}: a big-endian GGUF file", name), "fetch or convert a little-endian one");
  }
  throw InputError(fmt::format("{}: version {} of GGUF; 2 and 3 are read", name, version), "convert the model again");
}

void refuse_others(const GgufMetadata& metadata) {
  if (const auto type = metadata.find_text("general.type"); type && *type != "model") {
    metadata.refuse("general.type", "\"model\" is wanted", "give the file of the model itself");
  }
  if (metadata.find_integer("split.count", 0, std::numeric_limits<uint16_t>::max()).value_or(0) > 1) {
    metadata.refuse("split.count", "models in one file are read", "join the parts: llama-gguf-split --merge FIRST_PART OUT");
  }
}

size_t read_alignment(const GgufMetadata& metadata) {
  constexpr const char* kKey = "general.alignment";
  const int64_t alignment = metadata.find_integer(kKey, 8, 1 << 20).value_or(32);
  if (alignment % 8 != 0) metadata.refuse(kKey, "a multiple of 8 is wanted");
  return static_cast<size_t>(alignment);
}

uint64_t read_count(GgufCursor& cursor, size_t least_bytes, uint64_t most, std::string_view what) {
  const uint64_t count = cursor.count(least_bytes, what);
  if (count > most) refuse_gguf(cursor.file(), fmt::format("claims {} {}; at most {} are read", count, what, most));
  return count;
}

}  // namespace

const StoredTensor& Gguf::at(const std::string& tensor) const {
  const auto found = tensors.find(tensor);
  if (found == tensors.end()) throw InputError(fmt::format("{}: tensor {} is missing", name, excerpt(tensor)));
  return found->second;
}

Gguf parse_gguf(std::span<const std::byte> image, const std::string& name) {
  static_assert(std::endian::native == std::endian::little, "the format is little-endian");
  const size_t header = std::min(image.size(), kMostHeader);
  GgufCursor cursor(image.first(header), name, image.size() - header);
  const auto magic = cursor.take(std::min(kMagic.size(), image.size()));
  if (std::string_view(reinterpret_cast<const char*>(magic.data()), magic.size()) != kMagic) {
    refuse_gguf(name, "does not begin with \"GGUF\"");
  }
  check_version(cursor.number<uint32_t>(), name);
  const uint64_t tensors = read_count(cursor, kLeastTensor, kMostTensors, "tensors");
  const uint64_t keys = read_count(cursor, kLeastKey, kMostKeys, "keys of metadata");

  Gguf contents;
  contents.name = name;
  contents.metadata = GgufMetadata(cursor, keys);
  refuse_others(contents.metadata);
  std::vector<TensorClaim> claims;
  for (uint64_t i = 0; i < tensors; ++i) claims.push_back(read_claim(cursor));

  const size_t alignment = read_alignment(contents.metadata);
  const size_t begin = (cursor.position() + alignment - 1) / alignment * alignment;
  contents.header = image.first(cursor.position());
  const std::span<const std::byte> data = begin < image.size() ? image.subspan(begin) : std::span<const std::byte>();
  for (TensorClaim& claim : claims) place(claim, data, alignment, name);
  refuse_overlaps(claims, name);
  for (TensorClaim& claim : claims) {
    const auto [position, is_new] = contents.tensors.try_emplace(claim.tensor.name, claim.tensor);
    if (!is_new) refuse_tensor(name, claim.tensor.name, "appears twice");
  }
  return contents;
}

bool is_gguf(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return false;
  if (path.ends_with(".gguf")) return true;
  if (!std::filesystem::is_regular_file(path, error)) return false;  // opening a pipe would wait
  std::array<char, kMagic.size()> begin{};
  std::ifstream(path, std::ios::binary).read(begin.data(), begin.size());
  return std::string_view(begin.data(), begin.size()) == kMagic;
}

}  // namespace sluice
