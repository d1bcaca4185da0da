#include "tests/cuda/device/device_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/simd/bfloat16.h"
#include "kernels/reference/oracle.h"

namespace sluice::testing {

float rounded(float value) { return cpu::widen(cpu::round_to_bf16(value)); }
float stored(DataType kv, float value) { return static_cast<float>(oracle::round_to(kv, value)); }

double error_of(const std::vector<float>& got, const std::vector<double>& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  double off = 0;
  double size = 0;
  for (size_t i = 0; i < std::min(got.size(), wanted.size()); ++i) {
    off += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    size += wanted[i] * wanted[i];
  }
  return std::sqrt(off / size);
}

Batch::Batch(const std::vector<int>& rows, const std::vector<int>& tokens, int page, unsigned seed)
    : lengths(tokens.begin(), tokens.end()), builder(page) {
  query_indptr = first_page = {0};
  for (size_t s = 0; s < rows.size(); ++s) {
    query_indptr.push_back(query_indptr.back() + rows[s]);
    first_page.push_back(first_page.back() + pages_for(tokens[s], page));
  }
  page_indices.resize(all_pages());
  std::iota(page_indices.begin(), page_indices.end(), 0);
  std::shuffle(page_indices.begin(), page_indices.end(), std::mt19937(seed));
  for (size_t s = 0; s < rows.size(); ++s) {
    builder.add({.first = tokens[s] - rows[s], .rows = rows[s], .decoding = rows[s] == 1}, pages(static_cast<int>(s)));
  }
}

void CudaDeviceTest::SetUp() {
  GpuTest::SetUp();
  if (runs()) device_ = create_device("cuda");
}

std::vector<float> CudaDeviceTest::draw(size_t count, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random_);
  return values;
}

Held CudaDeviceTest::hold(std::vector<float> values, int64_t rows, int64_t columns, DataType type, int64_t gap) {
  Held held;
  const int64_t stride = columns + gap;
  held.values = std::move(values);
  std::vector<float> wide(rows * stride, NAN);
  std::vector<uint16_t> narrow(rows * stride, 0x7fc0);
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t at = i / columns * stride + i % columns;
    narrow[at] = cpu::round_to_bf16(held.values[i]);
    if (type == kBF16) held.values[i] = cpu::widen(narrow[at]);
    wide[at] = held.values[i];
  }
  const size_t bytes = wide.size() * size_of(type);
  held.memory = device_->allocate(bytes);
  device_->write(held.memory->data(), type == kBF16 ? static_cast<const void*>(narrow.data()) : wide.data(), bytes);
  held.matrix = {held.memory->data(), type, rows, columns, stride};
  return held;
}

Held CudaDeviceTest::empty(int64_t rows, int64_t columns, DataType type, int64_t gap) {
  return hold(std::vector<float>(rows * columns, NAN), rows, columns, type, gap);
}

std::vector<float> CudaDeviceTest::fetch(const Matrix& matrix) {
  std::vector<std::byte> bytes(((matrix.rows - 1) * matrix.stride + matrix.columns) * size_of(matrix.type));
  device_->read(bytes.data(), matrix.data, bytes.size());
  std::vector<float> values;
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t i = row * matrix.stride; i < row * matrix.stride + matrix.columns; ++i) {
      values.push_back(matrix.type == kBF16 ? cpu::widen(reinterpret_cast<const uint16_t*>(bytes.data())[i])
                                            : reinterpret_cast<const float*>(bytes.data())[i]);
    }
  }
  return values;
}

std::unique_ptr<Weight> CudaDeviceTest::weight_of(const std::vector<float>& values, int64_t rows, int64_t columns) {
  return device_->create_weight(values.data(), kF32, rows, columns);
}

std::pair<std::vector<float>, std::vector<float>> CudaDeviceTest::fill(Pool& pool, std::span<const int32_t> pages, int tokens) {
  const size_t count = static_cast<size_t>(pool.layers()) * tokens * pool.kv_heads() * pool.layout().head_dim;
  std::vector<float> keys = draw(count);
  std::vector<float> values = draw(count);
  pool.write(pages, tokens, keys.data(), values.data());
  for (float& key : keys) key = stored(pool.layout().kv, key);
  for (float& value : values) value = stored(pool.layout().kv, value);
  return {keys, values};
}

}  // namespace sluice::testing
