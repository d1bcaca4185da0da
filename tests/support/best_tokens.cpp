#include "tests/support/best_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace sluice::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A matrix of the type that the device's passes have.
struct Rows {
  Rows(Device& device, const std::vector<float>& values, int64_t columns) {
    const DataType type = device.info().activation;
    const auto rows = static_cast<int64_t>(values.size()) / columns;
    memory = device.allocate(values.size() * size_of(type));
    matrix = {memory->data(), type, rows, columns, columns};
    if (type == DataType::kF32) {
      device.write(memory->data(), values.data(), values.size() * sizeof(float));
      return;
    }
    std::vector<uint16_t> narrow;
    for (const float value : values) narrow.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));  // exact
    device.write(memory->data(), narrow.data(), narrow.size() * sizeof(uint16_t));
  }

  std::unique_ptr<Memory> memory;
  Matrix matrix;
};

class Products {
 public:
  /// With `holes` some outputs have weights of -inf alone.
  Products(Device& device, int64_t outputs, int64_t inputs, bool holes = false)
      : device_(device), outputs_(outputs), inputs_(inputs), holes_(holes) {
    weights_ = integers(outputs * inputs);
    for (int64_t output = 0; holes && output < outputs; ++output) {
      if (outputs == 16 || output % 3 == 0) std::fill_n(weights_.begin() + output * inputs, inputs, -kInfinity);
    }
    weight_ = device.create_weight(weights_.data(), DataType::kF32, outputs, inputs);
    picks_ = device.create_picks(kMostRows);
    found_ = device.allocate(kMostRows * static_cast<size_t>(outputs) * sizeof(float));
    computed_ = device.allocate(found_->bytes());
  }

  void check(int64_t rows) {
    std::vector<float> x = integers(rows * inputs_);
    if (holes_) {
      for (float& value : x) value = 1 + std::abs(value);  // no 0 * inf
    }
    const bool has_special = rows > 4;
    if (has_special) {
      x[static_cast<size_t>(inputs_)] = NAN;
      x[static_cast<size_t>(2 * inputs_ + inputs_ / 2)] = kInfinity;
      x[static_cast<size_t>(3 * inputs_)] = -kInfinity;
    }
    const Rows held(device_, x, inputs_);
    std::vector<SampleRow> choices;
    for (int64_t row = rows - 1; row >= 0; --row) {
      if (row % 5 != 4) choices.push_back({.row = row});
    }
    std::vector<Sampled> best(choices.size());
    std::vector<Sampled> sampled(choices.size());
    const Matrix logits{found_->data(), DataType::kF32, rows, outputs_, outputs_};
    device_.find_best(held.matrix, *weight_, logits, *picks_);
    device_.pick_best(logits, choices, *picks_);
    EXPECT_EQ(picks_->rows(), static_cast<int>(choices.size()));
    device_.take(*picks_, best);
    const Matrix others{computed_->data(), DataType::kF32, rows, outputs_, outputs_};
    device_.matmul(held.matrix, *weight_, others);
    device_.sample(others, choices, sampled);
    for (size_t i = 0; i < choices.size(); ++i) {
      const int64_t row = choices[i].row;
      const std::string which = std::to_string(row) + " of " + std::to_string(rows) + " rows, " + std::to_string(inputs_) +
                                " x " + std::to_string(outputs_);
      EXPECT_EQ(best[i].token, sampled[i].token) << which;
      EXPECT_EQ(best[i].sound, sampled[i].sound) << which;
      const bool is_dear = outputs_ * inputs_ > 5'000'000 && row > 2;
      if (holes_ || is_dear || (has_special && row >= 1 && row <= 3)) continue;
      EXPECT_EQ(best[i].token, greatest(&x[static_cast<size_t>(row * inputs_)])) << which;
      EXPECT_TRUE(best[i].sound) << which;
    }
  }

 private:
  static constexpr int kMostRows = 80;

  std::vector<float> integers(int64_t count) {
    std::uniform_int_distribution<int> few(-2, 2);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(few(random_));
    return values;
  }

  /// The first of the greatest outputs of a row, which are whole numbers.
  int32_t greatest(const float* x) const {
    int32_t best = 0;
    float most = -kInfinity;
    for (int64_t output = 0; output < outputs_; ++output) {
      float sum = 0;
      for (int64_t i = 0; i < inputs_; ++i) sum += x[i] * weights_[static_cast<size_t>(output * inputs_ + i)];
      if (sum <= most) continue;
      most = sum;
      best = static_cast<int32_t>(output);
    }
    return best;
  }

  Device& device_;
  int64_t outputs_, inputs_;
  bool holes_;
  std::mt19937 random_{11};
  std::vector<float> weights_;
  std::unique_ptr<Weight> weight_;
  std::unique_ptr<Device::Picks> picks_;
  std::unique_ptr<Memory> found_, computed_;
};

}  // namespace

void expect_best_tokens(Device& device) {
  // Of one tile and of several in turn, of 64 to 192 outputs; sums of one block and of clusters; what only libraries multiply; a
  // ring of all of a multiprocessor's memory, with rows copied anew for each tile.
  const std::pair<int, int> shapes[] = {{16, 8}, {33, 40}, {2048, 2048}, {12304, 64}, {36480, 136}, {50688, 704}};
  for (const auto& [outputs, inputs] : shapes) {
    Products products(device, outputs, inputs);
    for (const int rows : {1, 8, 13, 20, 33, 64, 70, 2}) products.check(rows);
  }
  for (const int outputs : {16, 1008}) {
    Products products(device, outputs, 72, true);
    for (const int rows : {1, 17, 64}) products.check(rows);
  }
}

}  // namespace sluice::testing
