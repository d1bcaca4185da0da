// Operations on rows of matrices, against the same in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "agents/evaluation/flow_script.h"
#include "kernels/cuda/products/matmul.h"
#include "kernels/cuda/rows/rows.h"
#include "scripting/base/error.h"
#include "scripting/graph/plan.h"
#include "tests/cuda/device/device_fixture.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using testing::CudaDeviceTest;
using testing::error_of;
using testing::Held;
using testing::rounded;

TEST_F(CudaDeviceTest, NamesItself) {
  EXPECT_EQ(device_->info().name, "cuda");
  EXPECT_EQ(device_->info().activation, kBF16);
  EXPECT_FALSE(device_->info().description.empty());
}

TEST_F(CudaDeviceTest, KnowsWhatMemoryIsFree) {
  constexpr size_t kTaken = size_t{1} << 30;
  const size_t before = device_->free_bytes();
  const auto memory = device_->allocate(kTaken);
  EXPECT_LE(device_->free_bytes(), before - kTaken / 2);  // others may use the GPU meanwhile
}

TEST_F(CudaDeviceTest, FindsWhatWasCompiledAhead) {
  const testing::TemporaryDirectory folder;
  const char* const variable = "SLUICE_CACHE_DIR";
  const char* const before = std::getenv(variable);
  const std::string kept = before == nullptr ? "" : before;
  setenv(variable, folder.path().c_str(), 1);
  const auto files = [&] { return std::distance(std::filesystem::directory_iterator(folder.path()), {}); };
  std::vector<Plan> plans;
  for (const char* name : {"quest", "block_topk", "quest"}) {
    plans.push_back(compile(read_flow(name).trace({.head_dim = 64, .group = 4})).plan);
  }
  device_->compile_ahead(plans);
  const auto compiled = files();
  EXPECT_GE(compiled, 2) << "of each flow at least one";
  for (const Plan& plan : plans) device_->compile(plan, 2, 2);
  EXPECT_EQ(files(), compiled) << "nothing was left to compile";
  if (before == nullptr) {
    unsetenv(variable);
  } else {
    setenv(variable, kept.c_str(), 1);
  }
}

TEST_F(CudaDeviceTest, EmbedsAndGathersRowsExactly) {
  for (const int columns : {37, 256}) {
    const std::vector<float> values = draw(50 * columns);
    const auto table = weight_of(values, 50, columns);
    const std::vector<int32_t> tokens = {49, 0, 7, 7, 31};
    for (const DataType type : kTypes) {
      const Held out = empty(5, columns, type, 4);
      device_->embed(*table, tokens, nullptr, out.matrix);
      const Held again = empty(5, columns, type);
      const std::vector<int32_t> rows = {4, 4, 1, 0, 2};
      device_->gather_rows(out.matrix, rows, again.matrix);
      const std::vector<float> embedded = fetch(out.matrix);
      const std::vector<float> gathered = fetch(again.matrix);
      for (int i = 0; i < 5 * columns; ++i) {
        EXPECT_EQ(embedded[i], rounded(values[tokens[i / columns] * columns + i % columns]));
        EXPECT_EQ(gathered[i], embedded[rows[i / columns] * columns + i % columns]);
      }
    }
    const Held out = empty(1, columns, kF32);
    EXPECT_THROW(device_->embed(*table, std::vector<int32_t>{50}, nullptr, out.matrix), InternalError);
    EXPECT_THROW(device_->gather_rows(out.matrix, std::vector<int32_t>{1}, out.matrix), InternalError);
  }
}

TEST_F(CudaDeviceTest, SumsSquaresOfDifferencesByPart) {
  for (const DataType type : kTypes) {
    for (const auto& [columns, parts] : {std::pair{120, 3}, {1024, 8}, {7, 7}}) {
      const Held a = hold(61, columns, type, 8);
      const Held b = hold(61, columns, kF32);
      std::vector<float> sums(static_cast<size_t>(61 * parts));
      device_->squared_distances(a.matrix, b.matrix, parts, sums);
      std::vector<double> wanted(sums.size());
      for (int row = 0; row < 61; ++row) {
        for (int i = 0; i < columns; ++i)
          wanted[static_cast<size_t>(row * parts + i / (columns / parts))] += std::pow(a.at(row, i) - b.at(row, i), 2);
      }
      EXPECT_LT(error_of(sums, wanted), 1e-6) << columns;
    }
  }
}

TEST_F(CudaDeviceTest, NormalisesRows) {
  for (const int columns : {5, 37, 256, 4100}) {
    const std::vector<float> gains = draw(columns);
    const auto gain = weight_of(gains, 1, columns);
    for (const DataType type : kTypes) {
      const Held x = hold(9, columns, kF32, 4);
      const Held delta = hold(9, columns, type);
      const Held out = empty(9, columns, type, 8);
      const Held sum = empty(9, columns, type);
      device_->rms_norm(x.matrix, *gain, 1e-3F, out.matrix);
      const std::vector<float> normed = fetch(out.matrix);
      device_->add_rms_norm(x.matrix, delta.matrix, *gain, 1e-3F, sum.matrix);
      std::vector<double> wanted(9 * columns), wanted_residual(9 * columns), wanted_sum(9 * columns);
      for (int row = 0; row < 9; ++row) {
        double squares = 0, sum_squares = 0;
        for (int i = 0; i < columns; ++i) {
          squares += x.at(row, i) * x.at(row, i);
          wanted_residual[row * columns + i] = x.at(row, i) + delta.at(row, i);
          sum_squares += std::pow(wanted_residual[row * columns + i], 2);
        }
        for (int i = 0; i < columns; ++i) {
          wanted[row * columns + i] = x.at(row, i) / std::sqrt(squares / columns + 1e-3) * gains[i];
          wanted_sum[row * columns + i] = wanted_residual[row * columns + i] / std::sqrt(sum_squares / columns + 1e-3) * gains[i];
        }
      }
      EXPECT_LT(error_of(normed, wanted), tolerance(type)) << columns;
      EXPECT_LT(error_of(fetch(x.matrix), wanted_residual), tolerance(kF32)) << columns;
      EXPECT_LT(error_of(fetch(sum.matrix), wanted_sum), tolerance(type)) << columns;
    }
  }
}

TEST_F(CudaDeviceTest, NormalisesRowsWithPartsOfWhatIsAdded) {
  constexpr int kRows = 5;
  constexpr float kEpsilon = 1e-3F;
  for (const int columns : {37, 256, 4100}) {
    const std::vector<float> gains = draw(static_cast<size_t>(columns));
    const auto gain = weight_of(gains, 1, columns);
    for (int count = 1; count <= cuda::SumParts::kMost; ++count) {
      for (const DataType type : kTypes) {
        SCOPED_TRACE(std::to_string(count) + " parts of " + std::to_string(columns));
        const Held x = hold(kRows, columns, type, 4);
        const Held parts = hold(count * kRows, columns, kF32);
        const Held out = empty(kRows, columns, kBF16, 4);
        cuda::rms_norm_rows(x.matrix, {.data = parts.matrix.f32(), .count = count}, cuda::as_cuda(*gain).vector(), kEpsilon,
                            out.matrix, nullptr);
        std::vector<double> sums(x.values.begin(), x.values.end());
        for (size_t i = 0; i < parts.values.size(); ++i) sums[i % sums.size()] += parts.values[i];
        EXPECT_LT(error_of(fetch(x.matrix), sums), tolerance(type));
        const auto width = static_cast<size_t>(columns);
        for (size_t row = 0; row < kRows; ++row) {
          double squares = 0;
          for (size_t i = 0; i < width; ++i) squares += sums[row * width + i] * sums[row * width + i];
          const double factor = 1 / std::sqrt(squares / columns + kEpsilon);
          for (size_t i = 0; i < width; ++i) sums[row * width + i] *= factor * gains[i];
        }
        EXPECT_LT(error_of(fetch(out.matrix), sums), 6e-3);  // x may have been rounded, too
      }
    }
  }
  const Held numbers = hold(5, 256, kF32);
  for (const int count : {0, cuda::SumParts::kMost + 1}) {
    const cuda::SumParts parts{.data = numbers.matrix.f32(), .count = count};
    EXPECT_THROW(cuda::rms_norm_rows(numbers.matrix, parts, nullptr, kEpsilon, numbers.matrix, nullptr), InternalError) << count;
  }
}

TEST_F(CudaDeviceTest, MultipliesBySilu) {
  for (const int columns : {3, 768, 1030}) {
    for (const DataType type : kTypes) {
      std::vector<float> numbers = draw(14 * columns, 3);
      numbers[0] = -200;
      numbers[1] = 200;
      const Held gate_up = hold(numbers, 7, 2 * columns, type);
      const Held out = empty(7, columns, type);
      device_->silu_multiply(gate_up.matrix, out.matrix);
      std::vector<double> wanted;
      for (int row = 0; row < 7; ++row) {
        for (int i = 0; i < columns; ++i) {
          const double gate = gate_up.at(row, i);
          wanted.push_back(gate / (1 + std::exp(-gate)) * gate_up.at(row, columns + i));
        }
      }
      EXPECT_LT(error_of(fetch(out.matrix), wanted), tolerance(type)) << columns;
    }
  }
}

TEST_F(CudaDeviceTest, MultipliesByWeights) {
  for (const auto& [outputs, inputs] : {std::pair{48, 64}, {1536, 256}, {1000, 768}, {33, 40}, {50, 36}}) {
    std::vector<float> values = draw(static_cast<size_t>(outputs) * inputs);
    const auto weight = weight_of(values, outputs, inputs);
    for (float& value : values) value = rounded(value);
    for (const int rows : {1, 2, 7, 64, 130}) {
      for (const DataType type : kTypes) {
        for (const DataType out_type : kTypes) {
          const Held x = hold(rows, inputs, type, rows % 2 * 8);
          const Held out = empty(rows, outputs, out_type, rows % 2 * 2);
          device_->matmul(x.matrix, *weight, out.matrix);
          std::vector<double> wanted;
          for (int r = 0; r < rows; ++r) {
            for (int o = 0; o < outputs; ++o) {
              double sum = 0;
              for (int i = 0; i < inputs; ++i) {
                sum += static_cast<double>(rounded(static_cast<float>(x.at(r, i)))) * values[static_cast<size_t>(o) * inputs + i];
              }
              wanted.push_back(sum);
            }
          }
          EXPECT_LT(error_of(fetch(out.matrix), wanted), tolerance(out_type)) << rows << " x " << inputs << " x " << outputs;
        }
      }
    }
  }
}

TEST_F(CudaDeviceTest, GatesProducts) {
  // By one kernel, where rows are few and everything is aligned, and by two. Tiles of 64, 128 and 192 outputs, the last one full
  // or not, one of a block and several, whole inputs and parts.
  for (const auto& [columns, inputs] :
       {std::pair{8, 64}, {768, 256}, {1544, 136}, {6152, 64}, {8456, 64}, {18240, 136}, {40, 72}, {30, 64}, {20, 36}}) {
    std::vector<float> values = draw(static_cast<size_t>(2) * columns * inputs, 2 / std::sqrt(static_cast<float>(inputs)));
    const auto weight = weight_of(values, 2 * columns, inputs);
    for (float& value : values) value = rounded(value);
    for (const int rows : {1, 2, 9, 33, 64, 65}) {
      if (rows * columns > 400'000) continue;  // the reference takes long
      for (const DataType type : kTypes) {
        std::vector<float> numbers = draw(static_cast<size_t>(rows) * inputs);
        for (int i = 0; rows == 2 && i < inputs; ++i) numbers[i] *= 100;  // gates far below and above zero
        const Held x = hold(numbers, rows, inputs, type, rows % 2 * 8);
        const Held gate_up = empty(rows, 2 * columns, kBF16);
        const Held out = empty(rows, columns, kBF16, rows % 2 * 2);
        device_->gated_matmul(x.matrix, *weight, gate_up.matrix, out.matrix);
        std::vector<double> wanted;
        for (int r = 0; r < rows; ++r) {
          const auto sum = [&](int output) {
            double total = 0;
            for (int i = 0; i < inputs; ++i) {
              total +=
                  static_cast<double>(rounded(static_cast<float>(x.at(r, i)))) * values[static_cast<size_t>(output) * inputs + i];
            }
            return total;
          };
          for (int i = 0; i < columns; ++i) {
            const double gate = sum(i);
            wanted.push_back(gate / (1 + std::exp(-gate)) * sum(columns + i));
          }
        }
        const std::vector<float> got = fetch(out.matrix);
        EXPECT_LT(error_of(got, wanted), 2 * tolerance(kBF16)) << rows << " x " << inputs << " x " << columns;
        device_->gated_matmul(x.matrix, *weight, gate_up.matrix, out.matrix);
        EXPECT_EQ(fetch(out.matrix), got) << "once more, " << rows << " x " << inputs << " x " << columns;
      }
    }
  }
}

TEST_F(CudaDeviceTest, RefusesWhatItCannotRun) {
  EXPECT_THROW(device_->create_pool(1, 1, 1, page_layout({64, 1, 16, kF32}, {})), InputError);
  EXPECT_THROW(device_->create_pool(1, 1, 1, page_layout({80, 1, 16, kBF16}, {})), InputError);
  EXPECT_THROW(device_->create_pool(1, 0, 1, page_layout({64, 1, 16, kBF16}, {})), InputError);
  Plan wide;
  wide.graph.geometry.group = 17;
  EXPECT_THROW(device_->compile(wide, 1, 1), InputError);
  Device::Limits limits{.rows = 8, .sequences = 1, .pages_per_sequence = 4, .query_heads = 17, .kv_heads = 1, .head_dim = 64};
  EXPECT_THROW(device_->reserve(limits), InputError);
  limits.query_heads = 16;
  device_->reserve(limits);
  const auto cpu = create_cpu_device({.threads = 1});
  const auto weight = cpu->create_weight(draw(64).data(), kF32, 1, 64);
  const Held x = hold(2, 64, kBF16);
  EXPECT_THROW(device_->rms_norm(x.matrix, *weight, 0, x.matrix), InternalError);
  EXPECT_THROW(device_->silu_multiply(x.matrix, x.matrix), InternalError);
  const auto square = weight_of(draw(64 * 64), 64, 64);
  const Held uncut = empty(2, 64, kBF16);
  EXPECT_THROW(device_->gated_matmul(x.matrix, *square, uncut.matrix, uncut.matrix), InternalError);
}

}  // namespace
}  // namespace sluice
