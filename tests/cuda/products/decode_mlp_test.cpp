// The products of an MLP as one kernel for few rows, against float64 and against products of their own.
#include "kernels/cuda/products/decode_mlp.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>
#include <string>

#include "scripting/base/error.h"
#include "tests/cuda/device/device_fixture.h"

namespace sluice {
namespace {

using testing::error_of;
using testing::Held;
using testing::rounded;

/// By whether launches are cooperative.
class CudaDecodeMlp : public testing::CudaDeviceTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    testing::CudaDeviceTest::SetUp();
    if (!runs()) return;
    stream_.emplace();
    mlp_ = std::make_unique<cuda::DecodeMlp>();
  }

  struct Weights {
    std::vector<float> gate_up, down;
    std::unique_ptr<Weight> gate_up_weight, down_weight;

    Matrix gate_up_matrix() const { return cuda::as_cuda(*gate_up_weight).matrix(); }
    Matrix down_matrix() const { return cuda::as_cuda(*down_weight).matrix(); }
  };

  Weights draw_weights(int hidden, int intermediate) {
    Weights weights;
    const auto add = [&](std::vector<float>& values, int64_t outputs, int64_t inputs) {
      values = draw(static_cast<size_t>(outputs * inputs), 1 / std::sqrt(static_cast<float>(inputs)));
      for (float& value : values) value = rounded(value);
      return weight_of(values, outputs, inputs);
    };
    weights.gate_up_weight = add(weights.gate_up, int64_t{2} * intermediate, hidden);
    weights.down_weight = add(weights.down, hidden, intermediate);
    return weights;
  }

  struct Result {
    std::vector<float> activated, parts;  // [rows, intermediate], [parts, rows, hidden]
    int count = 0;                        // of parts
    bool operator==(const Result&) const = default;

    std::vector<float> out(size_t row, size_t rows, size_t hidden) const {
      std::vector<float> sums(hidden);
      for (size_t part = 0; part < static_cast<size_t>(count); ++part) {
        for (size_t i = 0; i < hidden; ++i) sums[i] += parts[(part * rows + row) * hidden + i];
      }
      return sums;
    }
  };

  cuda::SumParts launch(const Matrix& x, const Weights& weights, const Matrix& activated) {
    return mlp_->run(x, weights.gate_up_matrix(), weights.down_matrix(), cuda::as_cuda(*weights.down_weight).map(), activated,
                     GetParam(), stream_->get());
  }
  bool takes(const Weights& weights, const Matrix& x, const Matrix& activated) {
    return mlp_->takes(x, weights.gate_up_matrix(), weights.down_matrix(), activated);
  }
  Result read(const cuda::SumParts& parts, const Matrix& activated, int64_t hidden) {
    stream_->wait();
    const Matrix all{const_cast<float*>(parts.data), kF32, parts.count * activated.rows, hidden, hidden};
    return {fetch(activated), fetch(all), parts.count};
  }
  Result run(const Matrix& x, const Weights& weights, const Matrix& activated) {
    const std::vector<uint16_t> nan(static_cast<size_t>(activated.columns), 0x7fc0);
    for (int64_t i = 0; i < activated.rows; ++i) {
      device_->write(activated.slice_rows(i, 1).data, nan.data(), nan.size() * sizeof(uint16_t));
    }
    if (last_.data != nullptr) {
      const std::vector<float> numbers(static_cast<size_t>(last_.count * activated.rows * x.columns), std::nanf(""));
      device_->write(const_cast<float*>(last_.data), numbers.data(), numbers.size() * sizeof(float));
    }
    last_ = launch(x, weights, activated);
    return read(last_, activated, x.columns);
  }

  /// What a row gets: activated numbers, and from those that the device has, down.
  static void judge(const Weights& weights, std::span<const float> x, std::span<const float> activated,
                    std::span<const float> out) {
    const size_t hidden = x.size();
    const size_t intermediate = activated.size();
    const auto dot = [](std::span<const float> a, const float* b) {
      double sum = 0;
      for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
      return sum;
    };
    std::vector<double> wanted;
    for (size_t i = 0; i < intermediate; ++i) {
      const double gate = dot(x, weights.gate_up.data() + i * hidden);
      wanted.push_back(gate / (1 + std::exp(-gate)) * dot(x, weights.gate_up.data() + (intermediate + i) * hidden));
    }
    EXPECT_LT(error_of({activated.begin(), activated.end()}, wanted), 4e-3);
    wanted.clear();
    for (size_t i = 0; i < hidden; ++i) wanted.push_back(dot(activated, weights.down.data() + i * intermediate));
    EXPECT_LT(error_of({out.begin(), out.end()}, wanted), 5e-6);
  }

  std::optional<testing::OwnStream> stream_;
  std::unique_ptr<cuda::DecodeMlp> mlp_;
  cuda::SumParts last_;  // of `run`, which are NaN before the next one
};

struct MlpShape {
  int hidden, intermediate;
  int parts;  // that an H200 cuts down's inputs into; other GPUs may differ
};

/// Gate and up in one block or in clusters of two; all of their tiles full or not; a last stage of down that is not; blocks
/// without a part of down.
constexpr MlpShape kShapes[] = {{256, 6144, 4}, {256, 6104, 4}, {320, 12288, 4}, {192, 6104, 4}, {2112, 6080, 3}};

TEST_P(CudaDecodeMlp, GivesWhatFloat64Gives) {
  for (const MlpShape& shape : kShapes) {
    const Weights weights = draw_weights(shape.hidden, shape.intermediate);
    for (const int rows : {1, 8, 9, 17, 33, 64}) {
      SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(shape.hidden) + " and " +
                   std::to_string(shape.intermediate));
      const Held x = hold(rows, shape.hidden, kBF16, rows % 2 * 8);
      const Held activated = empty(rows, shape.intermediate, kBF16, rows % 2 * 8);
      if (!takes(weights, x.matrix, activated.matrix)) {
        ASSERT_NE(cuda::multiprocessors(), 132) << "an H200 takes it";
        continue;
      }
      const Result got = run(x.matrix, weights, activated.matrix);
      if (cuda::multiprocessors() == 132) {
        EXPECT_EQ(got.count, shape.parts);
      }
      const auto hidden = static_cast<size_t>(shape.hidden);
      const auto intermediate = static_cast<size_t>(shape.intermediate);
      for (const int row : {0, rows / 2, rows - 1}) {
        const auto at = static_cast<size_t>(row);
        judge(weights, std::span(x.values).subspan(at * hidden, hidden),
              std::span(got.activated).subspan(at * intermediate, intermediate), got.out(at, static_cast<size_t>(rows), hidden));
      }
      EXPECT_EQ(run(x.matrix, weights, activated.matrix), got) << "once more";
    }
  }
}

TEST_P(CudaDecodeMlp, GivesARowTheSameBitsInEveryBatchAndThoseOfTheProductOfGateAndUp) {
  constexpr int kHidden = 256;
  constexpr int kIntermediate = 6144;
  const Weights weights = draw_weights(kHidden, kIntermediate);
  const Held x = hold(64, kHidden, kBF16);
  const Held activated = empty(64, kIntermediate, kBF16);
  if (!takes(weights, x.matrix, activated.matrix)) GTEST_SKIP() << "another GPU";
  const Result all = run(x.matrix, weights, activated.matrix);
  for (const int rows : {1, 7, 8, 9, 16, 30, 33, 63}) {
    const Result some = run(x.matrix.slice_rows(0, rows), weights, activated.matrix.slice_rows(0, rows));
    EXPECT_TRUE(std::equal(some.activated.begin(), some.activated.end(), all.activated.begin())) << rows;
    ASSERT_EQ(some.count, all.count);
    for (int part = 0; part < all.count; ++part) {
      const auto first = some.parts.begin() + part * rows * kHidden;
      EXPECT_TRUE(std::equal(first, first + rows * kHidden, all.parts.begin() + part * 64 * kHidden))
          << rows << ", part " << part;
    }
  }
  cuda::Matmul matmul;
  matmul.run_gated(x.matrix, cuda::as_cuda(*weights.gate_up_weight), activated.matrix, nullptr);
  EXPECT_EQ(fetch(activated.matrix), all.activated);
}

TEST_P(CudaDecodeMlp, CallsRunBehindEachOther) {
  // Each begins to read weights while the one before it ends, and their blocks wait for each other in turn. All write the same
  // memory, so that what is read too early is another call's.
  constexpr int kHidden = 384;
  const Weights layers[] = {draw_weights(kHidden, 6144), draw_weights(kHidden, 12288), draw_weights(kHidden, 6104)};
  for (const int rows : {3, 64}) {
    const Held inputs[] = {hold(rows, kHidden, kBF16), hold(rows, kHidden, kBF16)};
    const Held space = empty(rows, 12288, kBF16);
    const auto activated = [&](const Weights& weights) { return space.matrix.slice_columns(0, weights.down_matrix().columns); };
    if (!takes(layers[0], inputs[0].matrix, activated(layers[0]))) GTEST_SKIP() << "another GPU";
    std::vector<Result> wanted;
    for (const Held& x : inputs) {
      for (const Weights& weights : layers) wanted.push_back(run(x.matrix, weights, activated(weights)));
    }
    constexpr size_t kCalls = 7;
    for (size_t repeat = 0; repeat < 100; ++repeat) {
      cuda::SumParts parts;
      size_t call = 0;
      for (size_t i = 0; i < kCalls; ++i) {
        call = (repeat * kCalls + i * 5) % wanted.size();
        const Weights& weights = layers[call % std::size(layers)];
        parts = launch(inputs[call / std::size(layers)].matrix, weights, activated(weights));
      }
      ASSERT_EQ(read(parts, activated(layers[call % std::size(layers)]), kHidden), wanted[call])
          << rows << " rows, repeat " << repeat;
    }
  }
}

TEST_P(CudaDecodeMlp, RefusesWhatItDoesNotTake) {
  const Weights odd = draw_weights(96, 512);  // down is not of a multiple of 64 outputs
  const Held x = hold(2, 96, kBF16);
  const Held space = empty(2, 512, kBF16);
  EXPECT_FALSE(takes(odd, x.matrix, space.matrix));
  EXPECT_FALSE(mlp_->pays(x.matrix.slice_columns(0, 32), odd.down_matrix())) << "not one tile of down";
  EXPECT_FALSE(mlp_->pays(x.matrix, odd.down_matrix()));
  EXPECT_THROW(launch(x.matrix, odd, space.matrix), InternalError);

  const Weights weights = draw_weights(128, 6144);
  const Held rows = hold(65, 128, kBF16, 8);
  const Held activated = empty(65, 6144, kBF16, 8);
  const Matrix two = rows.matrix.slice_rows(0, 2);
  const Matrix activated_two = activated.matrix.slice_rows(0, 2);
  if (!takes(weights, two, activated_two)) GTEST_SKIP() << "another GPU";
  EXPECT_TRUE(takes(weights, rows.matrix.slice_rows(0, 64), activated.matrix.slice_rows(0, 64)));
  EXPECT_FALSE(takes(weights, rows.matrix, activated.matrix)) << "65 rows";
  EXPECT_FALSE(takes(weights, hold(2, 128, kF32).matrix, activated_two));
  EXPECT_FALSE(takes(weights, two, empty(2, 6144, kF32).matrix));
  Matrix moved = activated_two;
  moved.data = static_cast<uint16_t*>(moved.data) + 2;
  EXPECT_FALSE(takes(weights, two, moved)) << "not aligned";
  moved = two;
  moved.data = static_cast<uint16_t*>(moved.data) + 2;
  EXPECT_FALSE(takes(weights, moved, activated_two)) << "not aligned";
}

TEST_P(CudaDecodeMlp, TakesNoMoreTilesThanFindAPlaceAtOnce) {
  if (cuda::multiprocessors() != 132) GTEST_SKIP() << "another GPU";
  struct Case {
    int hidden, intermediate;
    bool fits;
  };
  for (const auto& [hidden, intermediate, fits] : {Case{64, 12672, true}, {64, 12864, false}, {128, 17408, false}}) {
    const Weights weights = draw_weights(hidden, intermediate);
    const Held x = hold(2, hidden, kBF16);
    const Held activated = empty(2, intermediate, kBF16);
    EXPECT_EQ(takes(weights, x.matrix, activated.matrix), fits) << intermediate;
    if (!fits) {
      EXPECT_THROW(launch(x.matrix, weights, activated.matrix), InternalError);
    }
  }
}

TEST_P(CudaDecodeMlp, PaysForShortWeightsOfAboutAsManyPiecesAsThereAreBlocks) {
  if (cuda::multiprocessors() != 132) GTEST_SKIP() << "another GPU";
  // Nothing is read of weights here; of Qwen3, 1.7B and 8B have tiles that all find a place, and 8B has many.
  struct Geometry {
    int64_t hidden, intermediate;
    bool taken;
  };
  const Held numbers = empty(1, 64, kBF16);
  const auto of = [&](int64_t rows, int64_t columns) { return Matrix{numbers.matrix.data, kBF16, rows, columns, columns}; };
  for (const auto& [hidden, intermediate, taken] :
       {Geometry{1024, 3072, false}, {2048, 6144, true}, {2560, 9728, false}, {4096, 12288, false}, {5120, 17408, false}}) {
    const Matrix down = of(hidden, intermediate);
    for (const int rows : {1, 16, 64}) {
      const bool takes = mlp_->takes(of(rows, hidden), of(2 * intermediate, hidden), down, of(rows, intermediate));
      EXPECT_EQ(takes && mlp_->pays(of(rows, hidden), down), taken) << hidden << ", " << rows << " rows";
    }
  }
  EXPECT_TRUE(mlp_->takes(of(1, 8128), of(12288, 8128), of(8128, 6144), of(1, 6144)));
  EXPECT_FALSE(mlp_->takes(of(1, 8256), of(12288, 8256), of(8256, 6144), of(1, 6144))) << "129 tiles of down, 128 blocks";
  EXPECT_TRUE(mlp_->takes(of(1, 64), of(25344, 64), of(64, 12672), of(1, 12672)));
  EXPECT_FALSE(mlp_->pays(of(1, 64), of(64, 12672))) << "4 pieces for 132 blocks";
}

INSTANTIATE_TEST_SUITE_P(Launches, CudaDecodeMlp, ::testing::Bool());

}  // namespace
}  // namespace sluice
