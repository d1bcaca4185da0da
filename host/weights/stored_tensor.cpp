#include "host/weights/stored_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "host/weights/decode_blocks.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

/// Where row `row` of Hugging Face's order stands among pairs.
int64_t paired_row(int64_t row, int64_t rows_per_head) {
  const int64_t head = row / rows_per_head;
  const int64_t within = row % rows_per_head;
  const int64_t half = rows_per_head / 2;
  return head * rows_per_head + 2 * (within % half) + within / half;
}

}  // namespace

int64_t StoredTensor::elements() const {
  const StoredFormat& format = format_of(type);
  return static_cast<int64_t>(bytes.size() / format.block_bytes * format.block_elements);
}

std::string StoredTensor::shape_text() const { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void StoredTensor::read_rows(int64_t first, int64_t count, float* values) const {
  const StoredFormat& format = format_of(type);
  if (!holds_real_numbers(type)) {
    throw InputError(fmt::format("tensor {} has dtype {}; real numbers are wanted", excerpt(name), format.name));
  }
  const auto width = static_cast<size_t>(columns());
  const size_t row_bytes = width / format.block_elements * format.block_bytes;
  const auto decode = [&](int64_t row, size_t rows_at_once, float* target) {
    decode_blocks(type, bytes.subspan(static_cast<size_t>(row) * row_bytes, rows_at_once * row_bytes),
                  {target, rows_at_once * width});
  };
  if (paired_heads == 0) return decode(first, static_cast<size_t>(count), values);
  const int64_t rows_per_head = rows() / paired_heads;
  for (int64_t i = 0; i < count; ++i) decode(paired_row(first + i, rows_per_head), 1, values + static_cast<size_t>(i) * width);
}

std::vector<float> StoredTensor::to_f32() const {
  std::vector<float> values(static_cast<size_t>(elements()));
  read_rows(0, rows(), values.data());
  return values;
}

}  // namespace sluice
