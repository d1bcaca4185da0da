#include "kernels/cpu/selection/topk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/device/random.h"
#include "kernels/reference/oracle.h"
#include "kernels/reference/oracle_operators.h"

namespace sluice::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Attributes budget(int k, int first = 0, int last = 0, double ratio = 0) {
  Attributes attributes;
  attributes.k = k;
  attributes.first = first;
  attributes.last = last;
  attributes.ratio = ratio;
  return attributes;
}

using Pages = std::vector<int32_t>;

Pages top_k(const std::vector<float>& scores, const Attributes& attributes) {
  PageSelector selector(static_cast<int>(scores.size()));
  Pages selected(scores.size());
  selected.resize(selector.top_k(scores, attributes, selected.data()));
  return selected;
}

Pages approx_top_k(const std::vector<float>& scores, Attributes attributes, double tolerate, uint64_t key = 1) {
  attributes.tolerate = tolerate;
  PageSelector selector(static_cast<int>(scores.size()));
  Pages selected(scores.size());
  selected.resize(selector.approx_top_k(scores, attributes, key, selected.data()));
  return selected;
}

Pages threshold(const std::vector<float>& scores, float bound, const Attributes& attributes) {
  PageSelector selector(static_cast<int>(scores.size()));
  Pages selected(scores.size());
  selected.resize(selector.threshold(scores, bound, attributes, selected.data()));
  return selected;
}

Pages top_p(const std::vector<float>& weights, double p, Attributes attributes) {
  attributes.value = p;
  PageSelector selector(static_cast<int>(weights.size()));
  Pages selected(weights.size());
  selected.resize(selector.top_p(weights, attributes, selected.data()));
  return selected;
}

Pages by_sorting(const std::vector<float>& scores, const Attributes& attributes) {
  return oracle::top_k(std::vector<double>(scores.begin(), scores.end()), attributes);
}

TEST(TopP, TakesTheFewestThatHaveTheShare) {
  const std::vector<float> weights = {0.1F, 0.4F, 0.05F, 0.2F, 0.2F, 0.05F};
  EXPECT_EQ(top_p(weights, 0.4, budget(0)), Pages({1}));
  EXPECT_EQ(top_p(weights, 0.5, budget(0)), Pages({1, 3})) << "the older of equals";
  EXPECT_EQ(top_p(weights, 0.75, budget(0)), Pages({1, 3, 4}));
  EXPECT_EQ(top_p(weights, 1, budget(0)), Pages({0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(top_p(weights, 0.5, budget(0, 1, 1)), Pages({0, 1, 5})) << "forced pages count";
  Attributes most = budget(0, 0, 1);
  most.max_pages = 2;
  EXPECT_EQ(top_p(weights, 0.9, most), Pages({1, 5}));
}

TEST(TopP, WeightsThatAreNoneAreNotTaken) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(top_p({nan, -1, 0, -kInfinity, 0.5F}, 1, budget(0)), Pages({4}));
  EXPECT_EQ(top_p({nan, -1, 0, 0}, 0.9, budget(0, 0, 1)), Pages({3}));
  EXPECT_EQ(top_p({1, kInfinity, 2}, 0.5, budget(0)), Pages({1}));
}

TEST(TopP, AgreesWithOneByOne) {
  std::mt19937 random(5);
  for (int run = 0; run < 300; ++run) {
    std::vector<float> weights(1 + random() % 200);
    for (float& weight : weights) weight = static_cast<float>(random() % 64) / 64;  // sums are exact
    Attributes attributes = budget(0, static_cast<int>(random() % 3), static_cast<int>(random() % 3));
    attributes.max_pages = random() % 3 == 0 ? attributes.first + attributes.last + static_cast<int>(random() % 9) : 0;
    const double p = static_cast<double>(1 + random() % 64) / 64;
    EXPECT_EQ(top_p(weights, p, attributes), oracle::top_p(std::vector<double>(weights.begin(), weights.end()), p, attributes));
  }
}

size_t common(const Pages& a, const Pages& b) {
  Pages both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both.size();
}

/// Scores of every awkward kind, by number.
std::vector<float> hostile_scores(int kind, int pages, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> scores(pages);
  const float specials[] = {kInfinity, -kInfinity, NAN, -NAN, 0.0F, -0.0F, 1e-45F, -1e-45F, 3e38F, -3e38F};
  for (float& score : scores) {
    switch (kind) {
      case 0:
        score = normal(random);
        break;
      case 1:
        score = static_cast<float>(random() % 3);
        break;
      case 2:
        score = 1;
        break;
      case 3:
        score = NAN;
        break;
      case 4:
        score = specials[random() % std::size(specials)];
        break;
      case 5:
        score = random() % 4 == 0 ? specials[random() % std::size(specials)] : normal(random);
        break;
      case 6:  // all bit patterns
        score = std::bit_cast<float>(static_cast<uint32_t>(random()));
        break;
      default:  // neighbours in the last bits
        score = std::bit_cast<float>(0x3f800000U + static_cast<uint32_t>(random() % 1000));
    }
  }
  return scores;
}
constexpr int kKinds = 8;

TEST(TopK, KeepsLowerPageOnTies) { EXPECT_EQ(top_k({1, 2, 2, 2, 0}, budget(2)), (Pages{1, 2})); }

TEST(TopK, RanksNaNBelowMinusInfinity) { EXPECT_EQ(top_k({NAN, -kInfinity, NAN, -5}, budget(2)), (Pages{1, 3})); }

TEST(TopK, TreatsBothZerosAsEqual) { EXPECT_EQ(top_k({-0.0F, 0.0F, -0.0F, 0.0F}, budget(1)), (Pages{0})); }

TEST(TopK, KeepsForcedPagesAndFillsWithTheBest) {
  EXPECT_EQ(top_k({0, 1, 9, 2, 8, 3, 0, 0}, budget(2, 1, 2)), (Pages{0, 2, 4, 6, 7}));
}

TEST(TopK, TakesAllPagesWhereForcedOnesMeet) { EXPECT_EQ(top_k({1, 2, 3}, budget(0, 2, 2)), (Pages{0, 1, 2})); }

TEST(TopK, RoundsRatioUp) {
  EXPECT_EQ(budget_of(budget(0, 0, 0, 0.125), 17), 3);
  EXPECT_EQ(budget_of(budget(4, 1, 1, 0.125), 17), 6);
  EXPECT_EQ(budget_of(budget(40), 17), 17);
}

TEST(TopK, EqualsSortingForHostileScores) {
  std::mt19937_64 random(1);
  for (const int pages : {1, 2, 3, 15, 16, 17, 100, 511, 4095, 4096, 5000}) {
    for (int kind = 0; kind < kKinds; ++kind) {
      const std::vector<float> scores = hostile_scores(kind, pages, random);
      const int k = static_cast<int>(random() % static_cast<uint64_t>(pages + 1));
      const Attributes attributes = budget(k, static_cast<int>(random() % 3), static_cast<int>(random() % 3));
      ASSERT_EQ(top_k(scores, attributes), by_sorting(scores, attributes)) << pages << " pages, kind " << kind << ", k " << k;
    }
  }
}

TEST(TopK, FindsAnyBudgetInAPlateau) {
  const std::vector<float> scores(100'000, 3.5F);
  for (const int k : {1, 31, 50'000, 99'999}) {
    const Pages selected = top_k(scores, budget(k));
    ASSERT_EQ(selected.size(), static_cast<size_t>(k));
    EXPECT_EQ(selected.back(), k - 1);
  }
}

TEST(ApproxTopK, IsExactWithoutTolerance) {
  std::mt19937_64 random(2);
  for (const int pages : {5, 16, 333, 5000}) {
    for (int kind = 0; kind < kKinds; ++kind) {
      const std::vector<float> scores = hostile_scores(kind, pages, random);
      const Attributes attributes = budget(static_cast<int>(random() % static_cast<uint64_t>(pages)), 1, 1);
      ASSERT_EQ(approx_top_k(scores, attributes, 0), by_sorting(scores, attributes)) << pages << " pages, kind " << kind;
    }
  }
}

TEST(ApproxTopK, HasTheBudgetAndEnoughOfTheBest) {
  std::mt19937_64 random(3);
  for (const int pages : {64, 1000, 5000}) {
    for (int kind = 0; kind < kKinds; ++kind) {
      for (const double tolerate : {0.05, 0.3, 1.0}) {
        const std::vector<float> scores = hostile_scores(kind, pages, random);
        const Attributes attributes = budget(pages / 8, 1, 2);
        const Pages exact = by_sorting(scores, attributes);
        const Pages selected = approx_top_k(scores, attributes, tolerate);
        ASSERT_EQ(selected.size(), exact.size());
        ASSERT_TRUE(std::adjacent_find(selected.begin(), selected.end(), std::greater_equal<>()) == selected.end());
        EXPECT_EQ(selected.front(), 0);
        EXPECT_EQ(selected[selected.size() - 2], pages - 2);
        // Pages that tie with the last one taken are as good as those that sorting keeps.
        float worst = kInfinity;
        for (const int32_t page : exact)
          worst = order_key(std::bit_cast<uint32_t>(scores[page])) < order_key(std::bit_cast<uint32_t>(worst)) && page >= 1 &&
                          page < pages - 2
                      ? scores[page]
                      : worst;
        size_t good = 0;
        for (const int32_t page : selected) {
          const bool forced = page < 1 || page >= pages - 2;
          good += forced || order_key(std::bit_cast<uint32_t>(scores[page])) >= order_key(std::bit_cast<uint32_t>(worst)) ? 1 : 0;
        }
        EXPECT_GE(static_cast<double>(good), (1 - tolerate) * attributes.k + 3) << pages << " pages, kind " << kind;
      }
    }
  }
}

TEST(ApproxTopK, IsExactWithoutToleranceWhereASampleMisleads) {
  // Samples see the low pages only, the high pages only, or nothing but plateaus.
  constexpr int kPages = 20'000;
  std::mt19937_64 random(5);
  for (int kind = 0; kind < 4; ++kind) {
    std::vector<float> scores = hostile_scores(kind == 3 ? 1 : 0, kPages, random);
    for (int page = 0; page < kPages; ++page) {
      const bool sampled = page % (kPages / 32) < 8;
      if (kind == 0 && sampled) scores[page] += 1000;
      if (kind == 1 && !sampled) scores[page] += 1000;
      if (kind == 2 && sampled) scores[page] = -kInfinity;
    }
    for (const int k : {1, 37, 2500, 10'000, 19'999}) {
      ASSERT_EQ(approx_top_k(scores, budget(k), 0), by_sorting(scores, budget(k))) << "kind " << kind << ", k " << k;
    }
  }
}

TEST(ApproxTopK, RepeatsForAKeyAndVariesOverKeys) {
  std::mt19937_64 random(4);
  const std::vector<float> scores = hostile_scores(1, 2000, random);
  const Attributes attributes = budget(200);
  EXPECT_EQ(approx_top_k(scores, attributes, 1, 11), approx_top_k(scores, attributes, 1, 11));
  EXPECT_NE(approx_top_k(scores, attributes, 1, 11), approx_top_k(scores, attributes, 1, 12));
}

TEST(ApproxTopK, DrawsFromTheWholeBin) {
  const std::vector<float> scores(1000, 1.0F);
  const Pages selected = approx_top_k(scores, budget(100), 1);
  EXPECT_LT(common(selected, by_sorting(scores, budget(100))), 30U);
}

TEST(Threshold, KeepsScoresAboveAndForcedPages) {
  EXPECT_EQ(threshold({0, 5, NAN, 5.1F, kInfinity, 1, 0}, 5, budget(0, 1, 1)), (Pages{0, 3, 4, 6}));
}

TEST(Threshold, KeepsTheBestOfTooMany) {
  Attributes attributes = budget(0, 1, 1);
  attributes.max_pages = 4;
  EXPECT_EQ(threshold({0, 6, 7, 9, 9, 8, 0}, 5, attributes), (Pages{0, 3, 4, 6}));
}

TEST(Threshold, PassesNothingOverNaN) { EXPECT_EQ(threshold({1, kInfinity, NAN, 2}, NAN, budget(0, 0, 1)), (Pages{3})); }

TEST(Union, KeepsEachPageOnce) {
  const Pages a{0, 3, 9};
  const Pages b{0, 1, 9, 11};
  Pages both(7);
  both.resize(select_union(a, b, both.data()));
  EXPECT_EQ(both, (Pages{0, 1, 3, 9, 11}));
}

TEST(Window, KeepsBothEnds) {
  Pages selected(6);
  selected.resize(select_window(6, budget(0, 1, 2), selected.data()));
  EXPECT_EQ(selected, (Pages{0, 4, 5}));
}

}  // namespace
}  // namespace sluice::cpu
