#include "host/serving/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "scripting/base/error.h"

namespace sluice {
namespace {

std::vector<float> some_logits(int count) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> logits;
  for (int i = 0; i < count; ++i) logits.push_back(2 * normal(random));
  return logits;
}

Sampled sample_on(Device& device, std::vector<float> logits, const SamplingOptions& options, uint64_t step) {
  const auto columns = static_cast<int64_t>(logits.size());
  const SampleRow choice = choose_sample(options, step, 0);
  Sampled result;
  device.sample({logits.data(), DataType::kF32, 1, columns, columns}, {&choice, 1}, {&result, 1});
  return result;
}

// Counts of `draws` samples.
std::vector<int> histogram(const std::vector<float>& logits, const SamplingOptions& options, int draws) {
  const auto device = create_cpu_device({.threads = 1});
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) {
    ++counts[static_cast<size_t>(sample_on(*device, logits, options, static_cast<uint64_t>(i)).token)];
  }
  return counts;
}

// Sum over outcomes of (count - expected)^2 / expected, and the degrees of freedom.
double chi_square(const std::vector<int>& counts, const std::vector<double>& shares, int draws, int& freedom) {
  double sum = 0;
  freedom = -1;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (shares[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " was cut";
      continue;
    }
    const double expected = shares[i] * draws;
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++freedom;
  }
  return sum;
}

// softmax(logits / temperature) of the tokens in `kept`.
std::vector<double> shares_of(const std::vector<float>& logits, double temperature, const std::set<size_t>& kept) {
  std::vector<double> shares(logits.size());
  double total = 0;
  for (const size_t i : kept) total += shares[i] = std::exp(logits[i] / temperature);
  for (double& share : shares) share /= total;
  return shares;
}

std::vector<size_t> by_logit(const std::vector<float>& logits) {
  std::vector<size_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  return order;
}

void expect_distribution(const std::vector<float>& logits, const SamplingOptions& options, const std::set<size_t>& kept) {
  constexpr int kDraws = 40000;
  int freedom = 0;
  const double sum =
      chi_square(histogram(logits, options, kDraws), shares_of(logits, options.temperature, kept), kDraws, freedom);
  // Five standard deviations of the chi-square distribution above its mean.
  EXPECT_LT(sum, freedom + 5 * std::sqrt(2.0 * freedom));
}

TEST(Sampler, FollowsTheSoftmax) {
  const std::vector<float> logits = some_logits(20);
  std::set<size_t> all;
  for (size_t i = 0; i < logits.size(); ++i) all.insert(i);
  for (const float temperature : {0.7F, 1.0F, 2.0F}) {
    SamplingOptions options;
    options.temperature = temperature;
    options.seed = 11;
    expect_distribution(logits, options, all);
  }
}

TEST(Sampler, TopKKeepsTheLargest) {
  std::vector<float> logits = some_logits(20);
  const std::vector<size_t> order = by_logit(logits);
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 4;
  expect_distribution(logits, options, {order[0], order[1], order[2], order[3]});
}

TEST(Sampler, TopPKeepsTheFewestThatReachTheShare) {
  const std::vector<float> logits = some_logits(20);
  const std::vector<size_t> order = by_logit(logits);
  SamplingOptions options;
  options.temperature = 1.5;
  options.top_p = 0.8F;
  std::set<size_t> all(order.begin(), order.end());
  const std::vector<double> shares = shares_of(logits, 1.5, all);
  std::set<size_t> kept;
  double sum = 0;
  for (size_t i = 0; sum < 0.8; ++i) {
    kept.insert(order[i]);
    sum += shares[order[i]];
  }
  ASSERT_GT(kept.size(), 2U);
  expect_distribution(logits, options, kept);
}

TEST(Sampler, TopKBreaksTiesByLowerToken) {
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 2;
  const std::vector<int> counts = histogram({1, 1, 1, 1}, options, 200);
  EXPECT_EQ(counts[2] + counts[3], 0);
  EXPECT_GT(counts[0], 0);
  EXPECT_GT(counts[1], 0);
}

TEST(Sampler, DrawDependsOnSeedAndStepAlone) {
  const std::vector<float> logits = some_logits(50);
  SamplingOptions options;
  options.temperature = 1;
  const auto one = create_cpu_device({.threads = 1});
  const auto other = create_cpu_device({.threads = 2});
  sample_on(*other, logits, options, 99);  // whatever was drawn before
  int different_steps = 0;
  int different_seeds = 0;
  for (uint64_t step = 0; step < 100; ++step) {
    options.seed = 1;
    const int32_t token = sample_on(*one, logits, options, step).token;
    EXPECT_EQ(sample_on(*other, logits, options, step).token, token);
    different_steps += sample_on(*one, logits, options, step + 1).token != token ? 1 : 0;
    options.seed = 2;
    different_seeds += sample_on(*one, logits, options, step).token != token ? 1 : 0;
  }
  EXPECT_GT(different_steps, 50);
  EXPECT_GT(different_seeds, 50);
}

// What a seed gives is part of what it means: these were drawn before devices sampled.
TEST(Sampler, SeedsGiveWhatTheyGave) {
  const auto device = create_cpu_device({.threads = 1});
  const std::vector<float> logits = some_logits(1000);
  std::vector<int32_t> tokens;
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 1, .seed = 5}, SamplingOptions{.temperature = 0.7F, .top_k = 40, .seed = 6},
        SamplingOptions{.temperature = 1.3F, .top_k = 200, .top_p = 0.9F, .seed = 7}}) {
    for (uint64_t step = 0; step < 4; ++step) tokens.push_back(sample_on(*device, logits, options, step).token);
  }
  EXPECT_EQ(tokens, (std::vector<int32_t>{303, 675, 634, 398, 634, 965, 398, 634, 72, 634, 984, 95}));
}

TEST(Sampler, RefusesOptionsOutOfRange) {
  const auto refused = [](SamplingOptions options) { EXPECT_THROW(check_sampling(options), InputError); };
  refused({.temperature = -1});
  refused({.temperature = NAN});
  refused({.top_k = -1});
  refused({.top_p = 0});
  refused({.top_p = 1.5F});
  EXPECT_NO_THROW(check_sampling({}));
}

}  // namespace
}  // namespace sluice
