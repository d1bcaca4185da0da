#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// Types of stored numbers. Arithmetic is always float32; KV pages and cached fields are stored in one of these.
enum class DataType : uint8_t { kF32, kBF16, kE4M3, kE5M2 };

/// Bytes of one element.
size_t size_of(DataType type);
/// "f32", "bf16", "e4m3", "e5m2".
std::string_view name_of(DataType type);
std::optional<DataType> data_type_from_name(std::string_view name);

/// The named axes that a flow sees. A tensor has each axis at most once.
enum class Axis : uint8_t {
  kPage,   // the pages that a request has so far, oldest first; its extent B is known only at run time
  kToken,  // tokens inside a page
  kDim,    // channels of a head
  kHead,   // query heads that share this KV head
  kSub,    // groups made by an interleaved reduction
};

std::string_view name_of(Axis axis);
std::optional<Axis> axis_from_name(std::string_view name);

/// Extent of the page axis in shapes: "B", known at run time.
inline constexpr int kDynamic = -1;

struct Dimension {
  Axis axis;
  int extent;  // kDynamic for Axis::kPage

  bool operator==(const Dimension&) const = default;
};

/// Axes in storage order, slowest first. If the page axis is there, it is the first.
using Shape = std::vector<Dimension>;

/// "[page B, head 4]"; a scalar is "[]".
std::string to_string(const Shape& shape);
/// Position of `axis` in `shape`, or -1.
int find_axis(const Shape& shape, Axis axis);
bool has_axis(const Shape& shape, Axis axis);
/// Product of the extents of all axes but the page axis.
int64_t elements_per_page(const Shape& shape);

/// What a flow is specialised for: one KV head of a model and the size of a page.
struct Geometry {
  int head_dim = 64;
  int group = 4;  // query heads per KV head
  int page = 16;  // tokens a page, 8 to 128, a power of two
  DataType kv = DataType::kBF16;

  bool operator==(const Geometry&) const = default;
};

}  // namespace sluice
