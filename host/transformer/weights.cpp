#include "host/transformer/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "host/weights/decode_blocks.h"
#include "host/weights/half.h"
#include "kernels/cpu/simd/bfloat16.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace sluice {

const StoredTensor& WeightLoader::take(const std::string& name, const std::vector<int64_t>& shape) {
  const StoredTensor& tensor = checkpoint_.at(name);
  if (tensor.shape != shape) {
    throw InputError(fmt::format("{}: tensor \"{}\" has shape {}, but {} makes it [{}]", checkpoint_.model(), name,
                                 tensor.shape_text(), checkpoint_.configuration(), fmt::join(shape, ", ")),
                     fmt::format("weights and {} must belong to the same model", checkpoint_.configuration()));
  }
  if (!holds_real_numbers(tensor.type) || tensor.type == StoredType::kF64) {
    throw InputError(fmt::format("{}: tensor \"{}\" has dtype {}; F32, F16 or BF16 is wanted", checkpoint_.model(), name,
                                 format_of(tensor.type).name));
  }
  used_.insert(name);
  return tensor;
}

void WeightLoader::round(const StoredTensor& tensor, uint16_t* values) {
  constexpr int64_t kPiece = 1 << 14;  // elements, so that a piece stays in a near cache
  if (!threads_) threads_.emplace();
  const int64_t columns = tensor.columns();
  const int64_t rows_at_once = std::max<int64_t>(1, kPiece / columns);
  const auto piece = [&](int64_t index, int /*thread*/) {
    const int64_t first = index * rows_at_once;
    const int64_t rows = std::min(rows_at_once, tensor.rows() - first);
    std::vector<float> wide(static_cast<size_t>(rows * columns));
    tensor.read_rows(first, rows, wide.data());
    std::transform(wide.begin(), wide.end(), values + first * columns, cpu::round_to_bf16);
  };
  threads_->run((tensor.rows() + rows_at_once - 1) / rows_at_once, piece);
}

std::unique_ptr<Weight> WeightLoader::matrix(const std::vector<std::string>& names, const std::vector<int64_t>& rows,
                                             int64_t columns) {
  std::vector<const StoredTensor*> parts;
  int64_t total_rows = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    parts.push_back(&take(names[i], {rows[i], columns}));
    total_rows += rows[i];
  }
  const auto is_bf16 = [](const StoredTensor* part) { return part->type == StoredType::kBF16; };
  const bool rounds = checkpoint_.gguf() != nullptr;
  if (rounds || std::all_of(parts.begin(), parts.end(), is_bf16)) {
    std::vector<uint16_t> values(static_cast<size_t>(total_rows * columns));
    uint16_t* target = values.data();
    for (const StoredTensor* part : parts) {
      rounds ? round(*part, target) : static_cast<void>(std::memcpy(target, part->bytes.data(), part->bytes.size()));
      target += part->elements();
    }
    return device_.create_weight(values.data(), DataType::kBF16, total_rows, columns);
  }
  std::vector<float> values(static_cast<size_t>(total_rows * columns));
  float* target = values.data();
  for (const StoredTensor* part : parts) {
    part->read_rows(0, part->rows(), target);
    target += part->elements();
  }
  return device_.create_weight(values.data(), DataType::kF32, total_rows, columns);
}

std::unique_ptr<Weight> WeightLoader::vector(const std::string& name, int64_t columns) {
  std::vector<float> values = take(name, {columns}).to_f32();
  if (checkpoint_.gguf() != nullptr) {
    for (float& value : values) value = float_from_bf16(cpu::round_to_bf16(value));
  }
  return device_.create_weight(values.data(), DataType::kF32, 1, columns);
}

void WeightLoader::check_all_used(const std::string& architecture) const {
  for (const auto& [name, tensor] : checkpoint_.tensors()) {
    if (used_.contains(name)) continue;
    throw InputError(fmt::format("{}: tensor {} {} has no place in a {}", checkpoint_.model(), excerpt(name), tensor.shape_text(),
                                 architecture),
                     fmt::format("weights and {} must belong to the same model", checkpoint_.configuration()));
  }
}

}  // namespace sluice
