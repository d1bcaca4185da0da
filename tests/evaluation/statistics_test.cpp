#include "agents/evaluation/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>

#include "scripting/base/error.h"

namespace sluice::test {
namespace {

double right_of_eight(std::mt19937& random, double p) { return std::binomial_distribution<int>(8, p)(random); }

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
  for (int i = 0; i < 20000; ++i) independent.push_back({right_of_eight(random, 0.7), 8});
  EXPECT_NEAR(design_effect(independent), 1, 0.05);
  std::vector<Cluster> identical;
  for (int i = 0; i < 1000; ++i) identical.push_back({random() % 10 < 7 ? 8.0 : 0.0, 8});
  EXPECT_NEAR(design_effect(identical), 8, 1e-9);
  EXPECT_EQ(design_effect(std::vector<Cluster>{{3, 8}}), 1) << "one document tells nothing about its likeness";
  EXPECT_EQ(design_effect(std::vector<Cluster>{{8, 8}, {8, 8}}), 1);
}

TEST(WeightedSum, ReachesAsFarAsRootsOfSquares) {
  const Estimate sum = weighted_sum(std::vector<Estimate>{{0.5, {0.2, 0.9}, 1}, {0.25, {0.25, 0.25}, 3}, {0.4, {0.1, 0.6}, -1}});
  EXPECT_DOUBLE_EQ(sum.value, 0.85);
  EXPECT_DOUBLE_EQ(sum.interval.low, 0.85 - std::hypot(0.3, 0.2));
  EXPECT_DOUBLE_EQ(sum.interval.high, 0.85 + std::hypot(0.4, 0.3));
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
      clusters.push_back({right_of_eight(random, p), 8});
    }
    const Interval interval = clustered_wilson(clusters);
    covered += interval.low <= 0.7 && 0.7 <= interval.high;
  }
  EXPECT_NEAR(static_cast<double>(covered) / kRuns, 0.95, 0.025);
}

TEST(ClusteredWilson, OfSharesOfCreditIsNoWiderThanTheyVary) {
  std::mt19937 random(11);
  double width = 0;
  double width_of_whole = 0;
  int covered = 0;
  constexpr int kRuns = 2000;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<Cluster> clusters(16);
    std::vector<Cluster> whole(16);  // the same, as if all credits were all or nothing
    for (Cluster& cluster : clusters) {
      const double p = random() % 2 == 0 ? 0.5 : 0.9;
      while (cluster.samples < 3) cluster.add(right_of_eight(random, p) / 8);
    }
    for (size_t i = 0; i < clusters.size(); ++i) whole[i] = {clusters[i].credit, clusters[i].samples};
    const Interval interval = clustered_wilson(clusters);
    const Interval of_whole = clustered_wilson(whole);
    covered += interval.low <= 0.7 && 0.7 <= interval.high;
    width += interval.high - interval.low;
    width_of_whole += of_whole.high - of_whole.low;
  }
  EXPECT_NEAR(static_cast<double>(covered) / kRuns, 0.95, 0.025);
  EXPECT_LT(width, 0.9 * width_of_whole);
}

TEST(PooledWilson, DoesNotTakeTheDifferenceOfTasksForLikenessOfSamples) {
  const std::vector<std::vector<Cluster>> tasks = {{{1, 1}, {0, 1}}, {{8, 8}, {8, 8}}, {{16, 16}}};
  const Interval pooled = pooled_wilson(tasks);
  const Interval independent = wilson(33, 34);
  EXPECT_NEAR(pooled.low, independent.low, 1e-12);
  EXPECT_NEAR(pooled.high, independent.high, 1e-12);
}

TEST(PooledWilson, CoversTheTruthWhereTasksHaveDifferentDesignEffects) {
  std::mt19937 random(7);
  int covered = 0;
  constexpr int kRuns = 1000;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<std::vector<Cluster>> tasks(2);
    for (int i = 0; i < 60; ++i) {
      tasks[0].push_back({random() % 10 < 7 ? 8.0 : 0.0, 8});  // a document is understood or not
      tasks[1].push_back({right_of_eight(random, 0.7), 8});
    }
    const Interval interval = pooled_wilson(tasks);
    covered += interval.low <= 0.7 && 0.7 <= interval.high;
  }
  EXPECT_NEAR(static_cast<double>(covered) / kRuns, 0.95, 0.02);
}

double sign_flip_by_counting(const std::vector<int>& differences) {
  const auto sum = [&](unsigned flipped) {
    int total = 0;
    for (size_t i = 0; i < differences.size(); ++i) total += (flipped >> i & 1) != 0 ? -differences[i] : differences[i];
    return std::abs(total);
  };
  const unsigned outcomes = 1U << differences.size();
  int as_extreme = 0;
  for (unsigned flipped = 0; flipped < outcomes; ++flipped) as_extreme += sum(flipped) >= sum(0);
  return static_cast<double>(as_extreme) / outcomes;
}

/// Wilson's interval of another quantile than that of 95 %.
Interval wilson_of(double p, double n, double z) {
  const double centre = (p + z * z / (2 * n)) / (1 + z * z / n);
  const double half = z / (1 + z * z / n) * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  return {centre - half, centre + half};
}

TEST(MissOfTry, AddsUpToFiveOfAHundredOverAnyNumberOfTries) {
  EXPECT_DOUBLE_EQ(miss_of_try(1), 0.025);
  EXPECT_DOUBLE_EQ(miss_of_try(2), 0.05 / 6);
  double sum = 0;
  for (int64_t m = 1; m <= 100000; ++m) sum += miss_of_try(m);
  EXPECT_LT(sum, 0.05);
  EXPECT_GT(sum, 0.04999);
  EXPECT_GT(miss_of_try(INT64_MAX), 0);
  EXPECT_THROW(miss_of_try(0), InternalError);
}

TEST(Widened, IsWilsonsIntervalOfTheOtherLevel) {
  constexpr double kZ = 2.807033768343811;  // of 0.5 %
  for (int n = 1; n < 40; ++n) {
    for (int k = 0; k <= n; ++k) {
      const double p = static_cast<double>(k) / n;
      const Interval wide = widened(p, wilson(k, n), 0.005, IntervalScale::kShare);
      const Interval expected = wilson_of(p, n, kZ);
      EXPECT_NEAR(wide.low, expected.low, 1e-9) << k << " of " << n;
      EXPECT_NEAR(wide.high, expected.high, 1e-9) << k << " of " << n;
    }
  }
}

TEST(Widened, LeavesWhatIsAskedForAsItIs) {
  for (const IntervalScale scale : {IntervalScale::kShare, IntervalScale::kRatio, IntervalScale::kPlain}) {
    const Interval same = widened(0.7, {0.6, 0.75}, 0.05, scale);
    EXPECT_NEAR(same.low, 0.6, 1e-9);
    EXPECT_NEAR(same.high, 0.75, 1e-9);
  }
  EXPECT_THROW(widened(0.7, {0.6, 0.75}, 0.06, IntervalScale::kShare), InternalError);
  EXPECT_THROW(widened(0.7, {0.6, 0.75}, 0, IntervalScale::kShare), InternalError);
}

TEST(Widened, RatiosInLogarithmsAndTheRestPlainly) {
  constexpr double kTwice = 8.857e-5;  // beyond twice 1.96
  const Interval ratio = widened(2, {1, 4}, kTwice, IntervalScale::kRatio);
  EXPECT_NEAR(ratio.low, 0.5, 1e-3);
  EXPECT_NEAR(ratio.high, 8, 1e-2);
  const Interval plain = widened(-1, {-2, 1}, kTwice, IntervalScale::kPlain);
  EXPECT_NEAR(plain.low, -3, 1e-3);
  EXPECT_NEAR(plain.high, 3, 1e-3);
  const Interval no_share = widened(1.2, {1.1, 1.4}, kTwice, IntervalScale::kShare);
  EXPECT_NEAR(no_share.low, 1.0, 1e-3);
  EXPECT_NEAR(no_share.high, 1.6, 1e-3);
}

TEST(Widened, KeepsOrderAndBoundsWhateverItIsGiven) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> share(0, 1);
  for (int i = 0; i < 20000; ++i) {
    std::array<double, 3> points = {share(random), share(random), share(random)};
    for (double& point : points) {
      if (random() % 8 == 0) point = std::round(point);
    }
    std::sort(points.begin(), points.end());
    const Interval before{points[0], points[2]};
    const Interval after =
        widened(points[1], before, miss_of_try(1 + static_cast<int64_t>(random() % 100000)), IntervalScale::kShare);
    EXPECT_GE(after.low, 0);
    EXPECT_LE(after.high, 1);
    EXPECT_LE(after.low, before.low + 1e-12);
    EXPECT_GE(after.high, before.high - 1e-12);
  }
}

TEST(Widened, MeansOfTasksHoldTheirTruthAsOftenAsTheyAreTo) {
  // As a confirmation by suite quick has them: three tasks of 64 questions, 8 or 16 about a document.
  constexpr int kRuns = 20000;
  std::mt19937 random(5);
  const std::vector<double> shares = {0.85, 0.6, 0.95};
  const std::vector<std::pair<int, int>> documents = {{4, 16}, {4, 16}, {11, 3}};
  for (const int64_t m : {1, 4}) {
    int missed = 0;
    for (int run = 0; run < kRuns; ++run) {
      std::vector<std::vector<Cluster>> tasks;
      double mean = 0;
      for (size_t task = 0; task < shares.size(); ++task) {
        tasks.emplace_back();
        const auto [count, questions] = documents[task];
        double right = 0;
        for (int i = 0; i < count; ++i) {
          const double credit = std::binomial_distribution<int>(questions, shares[task])(random);
          tasks.back().push_back({credit, questions});
          right += credit;
        }
        mean += right / (count * questions) / 3;
      }
      const Interval interval = widened(mean, mean_wilson(tasks), miss_of_try(m), IntervalScale::kShare);
      missed += interval.low > 0.8 || interval.high < 0.8 ? 1 : 0;
    }
    EXPECT_LT(missed, kRuns * miss_of_try(m)) << "try " << m;
  }
}

TEST(SignFlip, AgreesWithCountingAllOutcomes) {
  EXPECT_DOUBLE_EQ(sign_flip({}), 1);
  EXPECT_DOUBLE_EQ(sign_flip(std::vector<int>{0, 0}), 1);
  for (int n = 1; n <= 12; ++n) {  // McNemar's test
    for (int first = 0; first <= n; ++first) {
      std::vector<int> differences(n, -1);
      std::fill_n(differences.begin(), first, 1);
      EXPECT_NEAR(sign_flip(differences), sign_flip_by_counting(differences), 1e-12);
    }
  }
  std::mt19937 random(13);
  for (int run = 0; run < 100; ++run) {
    std::vector<int> differences(random() % 11);
    for (int& difference : differences) difference = static_cast<int>(random() % 9) - 4;
    EXPECT_NEAR(sign_flip(differences), sign_flip_by_counting(differences), 1e-12);
  }
}

TEST(SignFlip, IsSoonDoneHoweverFineTheDifferences) {
  std::mt19937 random(17);
  std::vector<int> coarse(5000);
  for (int& difference : coarse) difference = static_cast<int>(random() % 3) - 1;
  std::vector<int> fine = coarse;
  for (int& difference : fine) difference *= 9973;
  fine.push_back(1);  // nothing but 1 divides all
  coarse.push_back(0);
  EXPECT_NEAR(sign_flip(fine), sign_flip(coarse), 0.01);
}

TEST(SignFlip, FindsNoDifferenceInOneDocument) {
  EXPECT_DOUBLE_EQ(sign_flip(std::vector<int>{16}), 1) << "sixteen questions about one document are one observation";
  EXPECT_DOUBLE_EQ(sign_flip(std::vector<int>(8, 2)), 2.0 / 256);
}

TEST(PairedRatio, CoversTheTrueRatioWhateverTheNumberOfPairs) {
  std::mt19937 random(11);
  std::lognormal_distribution<double> machine(0, 0.3);  // load that hits both sides of a pair
  std::normal_distribution<double> noise(1, 0.05);
  for (const int pairs : {5, 12, 24}) {
    int covered = 0;
    constexpr int kRuns = 4000;
    for (int run = 0; run < kRuns; ++run) {
      std::vector<double> slow;
      std::vector<double> fast;
      for (int i = 0; i < pairs; ++i) {
        const double load = machine(random);
        slow.push_back(3 * load * noise(random));
        fast.push_back(load * noise(random));
      }
      const Ratio ratio = paired_ratio(slow, fast);
      covered += ratio.low <= 3 && 3 <= ratio.high;
      EXPECT_LE(ratio.low, ratio.ratio);
      EXPECT_GE(ratio.high, ratio.ratio);
    }
    EXPECT_GE(covered, kRuns * 93 / 100) << pairs;
    EXPECT_LE(covered, kRuns * 97 / 100) << pairs;
  }
}

TEST(PairedRatio, HasTheSpreadOfStudentsDistribution) {
  // Against pairs of 1 the ratio is a mean: mean 3, sum of squares 2, two degrees of freedom.
  const Ratio ratio = paired_ratio(std::vector<double>{2, 3, 4}, std::vector<double>{1, 1, 1});
  EXPECT_NEAR(ratio.high - 3, 4.302652730 * std::sqrt(2.0 / 6), 1e-8);
  EXPECT_NEAR(ratio.low, 3 - 4.302652730 * std::sqrt(2.0 / 6), 1e-8);
  const Ratio two = paired_ratio(std::vector<double>{2, 4}, std::vector<double>{1, 1});
  EXPECT_NEAR(two.high - 3, 12.70620474, 1e-7) << "one degree of freedom";
  EXPECT_EQ(two.low, 0) << "a ratio of times is positive";
}

TEST(PairedRatio, OfEqualPairsHasNoSpread) {
  const std::vector<double> slow(5, 2.0);
  const std::vector<double> fast(5, 1.0);
  const Ratio ratio = paired_ratio(slow, fast);
  EXPECT_DOUBLE_EQ(ratio.ratio, 2);
  EXPECT_DOUBLE_EQ(ratio.low, 2);
  EXPECT_DOUBLE_EQ(ratio.high, 2);
}

TEST(PairedRatios, CoverTheTrueRatioOfAllAndOfEach) {
  std::mt19937 random(12);
  std::lognormal_distribution<double> noise(0, 0.1);
  constexpr int kRuns = 4000;
  const double truth[] = {1.5, 3, 6};
  int all = 0;
  int each = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<TimedPairs> things(3);
    for (size_t thing = 0; thing < things.size(); ++thing) {
      for (size_t pair = 0; pair <= thing; ++pair) {  // one of them has a single pair
        things[thing].slow.push_back(truth[thing] * noise(random));
        things[thing].fast.push_back(noise(random));
      }
    }
    const PairedRatios ratios = paired_ratios(things);
    all += ratios.all.low <= 3 && 3 <= ratios.all.high;
    for (size_t thing = 0; thing < things.size(); ++thing) {
      each += ratios.each[thing].low <= truth[thing] && truth[thing] <= ratios.each[thing].high;
    }
  }
  EXPECT_GE(all, kRuns * 93 / 100);
  EXPECT_LE(all, kRuns * 97 / 100);
  EXPECT_GE(each, 3 * kRuns * 93 / 100);
  EXPECT_LE(each, 3 * kRuns * 97 / 100);
}

TEST(PairedRatios, WantTwoPairsOfOneThing) {
  EXPECT_THROW(paired_ratios(std::vector<TimedPairs>{{{1}, {1}}, {{2}, {1}}}), InternalError);
  EXPECT_THROW(paired_ratios(std::vector<TimedPairs>{{{1, 2}, {1}}}), InternalError);
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
