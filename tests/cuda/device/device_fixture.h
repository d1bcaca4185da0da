#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "kernels/device/batch_builder.h"
#include "tests/cuda/gpu.h"

namespace sluice::testing {

/// A number as bf16 holds it.
float rounded(float value);
/// As a pool of that type holds it.
float stored(DataType kv, float value);

/// ||got - wanted|| / ||wanted||; NaN anywhere gives NaN.
double error_of(const std::vector<float>& got, const std::vector<double>& wanted);

/// A matrix on the device, with its numbers as the device has them. Rows lie `stride` apart; what lies between is NaN.
struct Held {
  std::unique_ptr<Memory> memory;
  Matrix matrix;
  std::vector<float> values;  // [rows, columns]

  double at(int64_t row, int64_t column) const { return values[row * matrix.columns + column]; }
};

/// A batch of sequences whose pages are dealt at random; sequence s has rows[s] rows of lengths[s] tokens.
struct Batch {
  Batch(const std::vector<int>& rows, const std::vector<int>& tokens, int page, unsigned seed);

  PassBatch view() const { return builder.batch(); }
  int sequences() const { return static_cast<int>(lengths.size()); }
  int rows() const { return query_indptr.back(); }
  std::span<const int32_t> pages(int s) const {
    return std::span(page_indices).subspan(first_page[s], first_page[s + 1] - first_page[s]);
  }
  int position(int s, int row) const { return lengths[s] - query_indptr[s + 1] + row; }

  int all_pages() const { return first_page.back(); }

  std::vector<int32_t> query_indptr, lengths, first_page, page_indices;
  BatchBuilder builder;
};

/// Tests of the operations of a GPU.
class CudaDeviceTest : public GpuTest {
 protected:
  void SetUp() override;

  std::vector<float> draw(size_t count, float scale = 1);
  Held hold(std::vector<float> values, int64_t rows, int64_t columns, DataType type, int64_t gap = 0);
  Held hold(int64_t rows, int64_t columns, DataType type, int64_t gap = 0) {
    return hold(draw(rows * columns), rows, columns, type, gap);
  }
  /// For results: NaN until something is written.
  Held empty(int64_t rows, int64_t columns, DataType type, int64_t gap = 0);
  std::vector<float> fetch(const Matrix& matrix);
  std::unique_ptr<Weight> weight_of(const std::vector<float>& values, int64_t rows, int64_t columns);
  /// K and V of all pages of a pool of one sequence's pages each, by writing through the pool.
  std::pair<std::vector<float>, std::vector<float>> fill(Pool& pool, std::span<const int32_t> pages, int tokens);

  static double tolerance(DataType type) { return type == DataType::kF32 ? 2e-6 : 4e-3; }
  static constexpr DataType kF32 = DataType::kF32;
  static constexpr DataType kBF16 = DataType::kBF16;
  static constexpr std::array<DataType, 2> kTypes = {kF32, kBF16};
  static constexpr std::array<DataType, 3> kKvTypes = {kBF16, DataType::kE4M3, DataType::kE5M2};

  std::unique_ptr<Device> device_;
  std::mt19937 random_{7};
};

}  // namespace sluice::testing
