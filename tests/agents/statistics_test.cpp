#include "agents/evaluation/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace sluice::test {
namespace {

TEST(Wilson, AgreesWithPublishedValues) {
  // Newcombe (1998), Statistics in Medicine 17, table I, method 3.
  struct Row {
    int successes, samples;
    double low, high;
  };
  for (const Row& row :
       {Row{81, 263, 0.2553, 0.3662}, Row{15, 148, 0.0624, 0.1605}, Row{0, 20, 0.0000, 0.1611}, Row{1, 29, 0.0061, 0.1718}}) {
    const Interval interval = wilson(row.successes, row.samples);
    EXPECT_NEAR(interval.low, row.low, 5e-5);
    EXPECT_NEAR(interval.high, row.high, 5e-5);
  }
}

TEST(Wilson, BoundsSolveTheScoreEquation) {
  for (int n = 1; n < 60; ++n) {
    for (int k = 0; k <= n; ++k) {
      const Interval interval = wilson(k, n);
      const double p = static_cast<double>(k) / n;
      EXPECT_LE(interval.low, p);
      EXPECT_GE(interval.high, p);
      for (const double bound : {interval.low, interval.high}) {
        if (bound == 0 || bound == 1) continue;
        EXPECT_NEAR(std::abs(p - bound), 1.959963984540054 * std::sqrt(bound * (1 - bound) / n), 1e-9);
      }
    }
  }
}

TEST(DesignEffect, IsOneForIndependentAndTheSizeForIdenticalSamples) {
  std::mt19937 random(3);
  std::vector<Cluster> independent;
  for (int i = 0; i < 20000; ++i) independent.push_back({std::binomial_distribution<int>(8, 0.7)(random), 8});
  EXPECT_NEAR(design_effect(independent), 1, 0.05);
  std::vector<Cluster> identical;
  for (int i = 0; i < 1000; ++i) identical.push_back({random() % 10 < 7 ? 8 : 0, 8});
  EXPECT_NEAR(design_effect(identical), 8, 1e-9);
  EXPECT_EQ(design_effect(std::vector<Cluster>{{3, 8}}), 1) << "one document tells nothing about its likeness";
  EXPECT_EQ(design_effect(std::vector<Cluster>{{8, 8}, {8, 8}}), 1);
}

TEST(ClusteredWilson, CoversTheTruthInNinetyFiveOfAHundredRuns) {
  std::mt19937 random(5);
  int covered = 0;
  constexpr int kRuns = 2000;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<Cluster> clusters;
    for (int i = 0; i < 40; ++i) {
      // Documents differ: their own accuracy is 0.5 or 0.9, 0.7 on average.
      const double p = random() % 2 == 0 ? 0.5 : 0.9;
      clusters.push_back({std::binomial_distribution<int>(8, p)(random), 8});
    }
    const Interval interval = clustered_wilson(clusters);
    covered += interval.low <= 0.7 && 0.7 <= interval.high;
  }
  EXPECT_NEAR(static_cast<double>(covered) / kRuns, 0.95, 0.025);
}

TEST(PooledWilson, DoesNotTakeTheDifferenceOfTasksForLikenessOfSamples) {
  const std::vector<std::vector<Cluster>> tasks = {{{1, 1}, {0, 1}}, {{8, 8}, {8, 8}}, {{16, 16}}};
  const Interval pooled = pooled_wilson(tasks);
  const Interval independent = wilson(33, 34);
  EXPECT_NEAR(pooled.low, independent.low, 1e-12);
  EXPECT_NEAR(pooled.high, independent.high, 1e-12);
}

TEST(McNemar, AgreesWithCountingAllOutcomes) {
  for (int n = 0; n <= 16; ++n) {
    for (int first = 0; first <= n; ++first) {
      const int distance = std::abs(2 * first - n);
      int as_extreme = 0;
      for (int outcome = 0; outcome < 1 << n; ++outcome) {
        as_extreme += std::abs(2 * __builtin_popcount(static_cast<unsigned>(outcome)) - n) >= distance;
      }
      EXPECT_NEAR(mcnemar(first, n - first), static_cast<double>(as_extreme) / (1 << n), 1e-9);
    }
  }
}

TEST(PairedRatio, CoversTheTrueRatioAndRepeats) {
  std::mt19937 random(11);
  std::lognormal_distribution<double> machine(0, 0.3);  // load that hits both sides of a pair
  std::normal_distribution<double> noise(1, 0.05);
  int covered = 0;
  constexpr int kRuns = 200;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> slow;
    std::vector<double> fast;
    for (int i = 0; i < 24; ++i) {
      const double load = machine(random);
      slow.push_back(3 * load * noise(random));
      fast.push_back(load * noise(random));
    }
    const Ratio ratio = paired_ratio(slow, fast);
    covered += ratio.low <= 3 && 3 <= ratio.high;
    EXPECT_LE(ratio.low, ratio.ratio);
    EXPECT_GE(ratio.high, ratio.ratio);
    const Ratio again = paired_ratio(slow, fast);
    EXPECT_EQ(again.low, ratio.low);
    EXPECT_EQ(again.high, ratio.high);
  }
  EXPECT_GT(covered, kRuns * 88 / 100);
}

TEST(PairedRatio, OfEqualPairsHasNoSpread) {
  const std::vector<double> slow(5, 2.0);
  const std::vector<double> fast(5, 1.0);
  const Ratio ratio = paired_ratio(slow, fast);
  EXPECT_DOUBLE_EQ(ratio.ratio, 2);
  EXPECT_DOUBLE_EQ(ratio.low, 2);
  EXPECT_DOUBLE_EQ(ratio.high, 2);
}

TEST(PassAtK, AgreesWithCountingAllSubsets) {
  for (int n = 1; n <= 10; ++n) {
    for (int correct = 0; correct <= n; ++correct) {
      for (int k = 1; k <= n; ++k) {
        int subsets = 0;
        int passing = 0;
        for (unsigned subset = 0; subset < 1U << n; ++subset) {
          if (__builtin_popcount(subset) != k) continue;
          ++subsets;
          passing += (subset & ((1U << correct) - 1)) != 0;
        }
        EXPECT_NEAR(pass_at_k(n, correct, k), static_cast<double>(passing) / subsets, 1e-12);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::test
