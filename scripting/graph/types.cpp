#include "scripting/graph/types.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {

namespace {

struct TypeInfo {
  DataType type;
  std::string_view name;
  size_t bytes;
};

constexpr std::array kTypes = {
    TypeInfo{DataType::kF32, "f32", 4},
    TypeInfo{DataType::kBF16, "bf16", 2},
    TypeInfo{DataType::kE4M3, "e4m3", 1},
    TypeInfo{DataType::kE5M2, "e5m2", 1},
};

constexpr std::array<std::pair<Axis, std::string_view>, 5> kAxes = {{
    {Axis::kPage, "page"},
    {Axis::kToken, "token"},
    {Axis::kDim, "dim"},
    {Axis::kHead, "head"},
    {Axis::kSub, "sub"},
}};

}  // namespace

size_t size_of(DataType type) {
  for (const TypeInfo& info : kTypes) {
    if (info.type == type) return info.bytes;
  }
  throw InternalError("size_of: not a data type");
}

std::string_view name_of(DataType type) {
  for (const TypeInfo& info : kTypes) {
    if (info.type == type) return info.name;
  }
  return "?";
}

std::optional<DataType> data_type_from_name(std::string_view name) {
  for (const TypeInfo& info : kTypes) {
    if (info.name == name) return info.type;
  }
  return std::nullopt;
}

std::string_view name_of(Axis axis) {
  for (const auto& [known, name] : kAxes) {
    if (known == axis) return name;
  }
  return "?";
}

std::optional<Axis> axis_from_name(std::string_view name) {
  for (const auto& [axis, known] : kAxes) {
    if (known == name) return axis;
  }
  return std::nullopt;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += name_of(shape[i].axis);
    text += shape[i].extent == kDynamic ? std::string(" B") : fmt::format(" {}", shape[i].extent);
  }
  return text + "]";
}

int find_axis(const Shape& shape, Axis axis) {
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i].axis == axis) return static_cast<int>(i);
  }
  return -1;
}

bool has_axis(const Shape& shape, Axis axis) { return find_axis(shape, axis) >= 0; }

int64_t elements_per_page(const Shape& shape) {
  int64_t elements = 1;
  for (const Dimension& dimension : shape) {
    if (dimension.axis != Axis::kPage) elements *= dimension.extent;
  }
  return elements;
}

}  // namespace sluice
