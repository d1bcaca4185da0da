#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/device.h"
#include "scripting/base/error.h"
#include "tests/support/best_tokens.h"
#include "tests/support/log_softmax.h"

namespace sluice {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Matrix matrix_of(std::vector<float>& values, int64_t columns) {
  return {values.data(), DataType::kF32, static_cast<int64_t>(values.size()) / columns, columns, columns};
}

Sampled sample_row(std::vector<float> logits, const SampleRow& choice = {}) {
  const auto device = create_cpu_device({.threads = 1});
  Sampled result;
  device->sample(matrix_of(logits, static_cast<int64_t>(logits.size())), {&choice, 1}, {&result, 1});
  return result;
}

TEST(CpuSample, GreedyTakesTheLowestOfEquals) {
  EXPECT_EQ(sample_row({1, 7, 3, 7, NAN}).token, 1);
  EXPECT_EQ(sample_row({-1, -0.0F, 0.0F}).token, 1);
}

TEST(CpuSample, GreedyIgnoresNan) {
  EXPECT_EQ(sample_row({NAN, -4, -3}).token, 2);
  EXPECT_EQ(sample_row({NAN, NAN, NAN}).token, 0);
}

TEST(CpuSample, SaysWhetherTheRowIsSound) {
  EXPECT_TRUE(sample_row({1, -kInfinity, 2}).sound);
  EXPECT_FALSE(sample_row({1, NAN, 2}).sound);
  EXPECT_FALSE(sample_row({1, kInfinity, 2}).sound);
  EXPECT_FALSE(sample_row({-kInfinity, -kInfinity}).sound);
}

TEST(CpuSample, DrawsInTheOrderOfShares) {
  // Shares 1/4, 1/2, 1/4: the order is 1, 0, 2.
  const std::vector<float> logits{0, std::log(2.0F), 0};
  const auto drawn = [&](double uniform) { return sample_row(logits, {.temperature = 1, .uniform = uniform}).token; };
  EXPECT_EQ(drawn(0), 1);
  EXPECT_EQ(drawn(0.49), 1);
  EXPECT_EQ(drawn(0.51), 0);
  EXPECT_EQ(drawn(0.74), 0);
  EXPECT_EQ(drawn(0.76), 2);
  EXPECT_EQ(drawn(0x1.fffffffffffffp-1), 2);
}

TEST(CpuSample, EachRowHasItsOwnChoice) {
  std::vector<float> logits{3, 2, 1, 1, 2, 3, 2, 3, 1};
  std::vector<SampleRow> choices{{.row = 2}, {.row = 0, .temperature = 1, .top_k = 2, .uniform = 0.99}, {.row = 2}, {.row = 1}};
  std::vector<Sampled> out(choices.size());
  create_cpu_device({.threads = 3})->sample(matrix_of(logits, 3), choices, out);
  EXPECT_EQ(out[0].token, 1);
  EXPECT_EQ(out[1].token, 1);
  EXPECT_EQ(out[2].token, 1);
  EXPECT_EQ(out[3].token, 2);
}

TEST(CpuSample, AGivenTokenIsTheResult) {
  EXPECT_EQ(sample_row({1, 7, 3}, {.given = 2}).token, 2);
  EXPECT_EQ(sample_row({1, 7, 3}, {.temperature = 1, .uniform = 0.5, .given = 0}).token, 0);
  EXPECT_FALSE(sample_row({1, NAN, 3}, {.given = 2}).sound);
}

TEST(CpuSample, GivesLogProbabilities) {
  const auto device = create_cpu_device({.threads = 2});
  std::mt19937 random(3);
  std::normal_distribution<float> gauss(0, 3);
  for (const int64_t columns : {1, 5, 20, 1000}) {
    constexpr int kRows = 4;
    std::vector<float> logits(static_cast<size_t>(kRows * columns));
    for (float& logit : logits) logit = std::round(gauss(random) * 4) / 4;  // some are equal
    if (columns > 1) logits[1] = -kInfinity;
    const std::vector<SampleRow> choices{{.row = 0, .likely = 20},
                                         {.row = 3, .temperature = 1, .uniform = 0.7, .likely = 0},
                                         {.row = 1},
                                         {.row = 2, .given = static_cast<int32_t>(columns - 1), .likely = 3}};
    const auto picks = device->create_picks(kRows);
    device->sample(matrix_of(logits, columns), choices, *picks);
    std::vector<Sampled> out(choices.size());
    device->take(*picks, out);
    EXPECT_EQ(out[3].token, columns - 1);
    for (const size_t i : {0, 1, 3}) {
      const std::span<const float> row(logits.data() + choices[i].row * columns, static_cast<size_t>(columns));
      const std::vector<double> wanted = testing::log_softmax<float>(row);
      const RowProbabilities& got = picks->probabilities(i);
      EXPECT_NEAR(got.of_token, wanted[static_cast<size_t>(out[i].token)], 1e-5);
      const auto likely = testing::likely_tokens(row, static_cast<size_t>(choices[i].likely));
      for (size_t place = 0; place < likely.size(); ++place) {
        EXPECT_EQ(got.likely[place].token, likely[place]);
        if (std::isinf(wanted[static_cast<size_t>(likely[place])])) continue;
        EXPECT_NEAR(got.likely[place].log_probability, wanted[static_cast<size_t>(likely[place])], 1e-5);
      }
    }
  }
}

TEST(CpuSample, RefusesWhatDoesNotFit) {
  const auto device = create_cpu_device({.threads = 1});
  std::vector<float> logits{1, 2, 3, 4};
  const Matrix matrix = matrix_of(logits, 2);
  std::vector<SampleRow> choices{{.row = 0}, {.row = 1}};
  std::vector<Sampled> out(2);
  EXPECT_NO_THROW(device->sample(matrix, choices, out));
  EXPECT_THROW(device->sample(matrix, choices, std::span(out).first(1)), InternalError);
  choices[1].row = 2;
  EXPECT_THROW(device->sample(matrix, choices, out), InternalError);
  choices[1].row = -1;
  EXPECT_THROW(device->sample(matrix, choices, out), InternalError);
  const std::vector<SampleRow> outside{{.row = 0, .given = 2}, {.row = 1}};
  EXPECT_THROW(device->sample(matrix, outside, out), InternalError);
  const std::vector<SampleRow> many{{.row = 0, .likely = kMostLikely + 1}, {.row = 1}};
  EXPECT_THROW(device->sample(matrix, many, out), InternalError);
  Matrix narrow = matrix;
  narrow.type = DataType::kBF16;
  EXPECT_THROW(device->sample(narrow, {}, {}), InternalError);
}

TEST(CpuSample, PicksTheBestOfProducts) { testing::expect_best_tokens(*create_cpu_device({.threads = 2})); }

TEST(CpuSample, PicksWaitUntilTheyAreTaken) {
  const auto device = create_cpu_device({.threads = 2});
  const auto picks = device->create_picks(3);
  EXPECT_EQ(picks->rows(), 0);
  std::vector<Sampled> out(2);
  EXPECT_THROW(device->take(*picks, out), InternalError);
  std::vector<float> first{1, 2, 3, 4, 9, 4, 0, 5, 0};
  const std::vector<SampleRow> two{{.row = 1}, {.row = 0}};
  const std::vector<SampleRow> three{{.row = 0}, {.row = 1}, {.row = 2}};
  device->sample(matrix_of(first, 3), two, *picks);
  EXPECT_EQ(picks->rows(), 2);
  std::vector<float> second{7, 0, 0, 0, 7, 0, 0, 0, 7};
  device->sample(matrix_of(second, 3), three, *picks);
  EXPECT_EQ(picks->rows(), 3);
  EXPECT_THROW(device->sample(matrix_of(first, 3), two, *picks), InternalError) << "of two calls, none has been taken";
  EXPECT_THROW(device->take(*picks, std::span(out).first(1)), InternalError);
  device->take(*picks, out);
  EXPECT_EQ(out[0].token, 1);
  EXPECT_EQ(out[1].token, 2);
  // The last call's are embedded, whether they have been taken or not.
  std::vector<float> table{0, 10, 20};
  const auto weight = device->create_weight(table.data(), DataType::kF32, 3, 1);
  std::vector<float> embedded(4);
  const std::vector<int32_t> tokens{-3, 1, -1, -2};
  for (const bool taken : {false, true}) {
    if (taken) device->take(*picks, std::span(out = std::vector<Sampled>(3)));
    device->embed(*weight, tokens, picks.get(), matrix_of(embedded, 1));
    EXPECT_EQ(embedded, (std::vector<float>{20, 10, 0, 10}));
  }
  const std::vector<int32_t> beyond{-4};
  EXPECT_THROW(device->embed(*weight, beyond, picks.get(), matrix_of(embedded, 1).slice_rows(0, 1)), InternalError);
  const std::vector<int32_t> none{-1};
  EXPECT_THROW(device->embed(*weight, none, nullptr, matrix_of(embedded, 1).slice_rows(0, 1)), InternalError);
  const std::vector<SampleRow> four(4);
  EXPECT_THROW(device->sample(matrix_of(first, 3), four, *picks), InternalError);
}

}  // namespace
}  // namespace sluice
