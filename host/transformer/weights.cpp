#include "host/transformer/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace sluice {

const StoredTensor& WeightLoader::take(const std::string& name, const std::vector<int64_t>& shape) {
  const StoredTensor& tensor = checkpoint_.at(name);
  if (tensor.shape != shape) {
    throw InputError(fmt::format("{}: tensor \"{}\" has shape {}, but config.json makes it [{}]", checkpoint_.directory(), name,
                                 tensor.shape_text(), fmt::join(shape, ", ")),
                     "weights and config.json must belong to the same model");
  }
  switch (tensor.type) {
    case StoredType::kF32:
    case StoredType::kF16:
    case StoredType::kBF16:
      break;
    default:
      throw InputError(fmt::format("{}: tensor \"{}\" has dtype {}; F32, F16 or BF16 is wanted", checkpoint_.directory(), name,
                                   name_of(tensor.type)));
  }
  used_.insert(name);
  return tensor;
}

std::unique_ptr<Weight> WeightLoader::matrix(const std::vector<std::string>& names, const std::vector<int64_t>& rows,
                                             int64_t columns) {
  std::vector<const StoredTensor*> parts;
  int64_t total_rows = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    parts.push_back(&take(names[i], {rows[i], columns}));
    total_rows += rows[i];
  }
  const bool bf16 =
      std::all_of(parts.begin(), parts.end(), [](const StoredTensor* part) { return part->type == StoredType::kBF16; });
  if (bf16) {
    std::vector<uint16_t> values(static_cast<size_t>(total_rows * columns));
    auto* target = reinterpret_cast<std::byte*>(values.data());
    for (const StoredTensor* part : parts) {
      std::memcpy(target, part->bytes.data(), part->bytes.size());
      target += part->bytes.size();
    }
    return device_.create_weight(values.data(), DataType::kBF16, total_rows, columns);
  }
  std::vector<float> values;
  values.reserve(static_cast<size_t>(total_rows * columns));
  for (const StoredTensor* part : parts) {
    const std::vector<float> converted = part->to_f32();
    values.insert(values.end(), converted.begin(), converted.end());
  }
  return device_.create_weight(values.data(), DataType::kF32, total_rows, columns);
}

std::unique_ptr<Weight> WeightLoader::vector(const std::string& name, int64_t columns) {
  const std::vector<float> values = take(name, {columns}).to_f32();
  return device_.create_weight(values.data(), DataType::kF32, 1, columns);
}

void WeightLoader::check_all_used(const std::string& architecture) const {
  for (const StoredTensor* tensor : checkpoint_.tensors()) {
    if (used_.contains(tensor->name)) continue;
    throw InputError(fmt::format("{}: tensor {} {} has no place in a {}", checkpoint_.directory(), excerpt(tensor->name),
                                 tensor->shape_text(), architecture),
                     "weights and config.json must belong to the same model");
  }
}

}  // namespace sluice
