#include "kernels/device/random.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Random, IsUniform) {
  const uint64_t key = random_key(1, RandomPurpose::kRandom, 2, 3, 4);
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 100'000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random_uniform(key, static_cast<uint64_t>(i));
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 0.005);
}

TEST(Random, DependsOnEveryPartOfTheKey) {
  const uint64_t key = random_key(1, RandomPurpose::kRandom, 2, 3, 4);
  EXPECT_NE(key, random_key(2, RandomPurpose::kRandom, 2, 3, 4));
  EXPECT_NE(key, random_key(1, RandomPurpose::kApproxTopK, 2, 3, 4));
  EXPECT_NE(key, random_key(1, RandomPurpose::kRandom, 3, 3, 4));
  EXPECT_NE(key, random_key(1, RandomPurpose::kRandom, 2, 2, 4));
  EXPECT_NE(key, random_key(1, RandomPurpose::kRandom, 2, 3, 5));
  EXPECT_NE(random_bits(key, 0), random_bits(key, 1));
}

}  // namespace
}  // namespace sluice
