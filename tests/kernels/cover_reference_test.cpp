// Covers as LuKA means them, by the reference: where they are dense attention, and what refinement leaves as it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "kernels/reference/oracle.h"
#include "scripting/lua/trace.h"

namespace sluice {
namespace {

constexpr int kTokens = 167;  // of pages of 16, the last of which has 7
constexpr int kDim = 64;
constexpr int kGroup = 4;

struct Numbers {
  std::vector<float> query, keys, values;

  explicit Numbers(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (auto [numbers, count] : {std::pair(&query, kGroup * kDim), {&keys, kTokens * kDim}, {&values, kTokens * kDim}}) {
      for (int i = 0; i < count; ++i) numbers->push_back(normal(random));
    }
  }
  /// The first token of so many stands in place of all.
  void repeat(std::vector<float>& numbers, size_t tokens = 16) const {
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = numbers[i / (tokens * kDim) * (tokens * kDim) + i % kDim];
  }
};

std::vector<double> attended(const std::string& options, const Numbers& numbers) {
  const FlowGraph graph = trace(R"(
    local flow = sluice.flow{name = "x", page = 16, kv = "f32"}
    function flow.cache(c) c.ksum = c.k:mean("token") c.vsum = c.v:mean("token") end
    function flow.index(q, c)
      local scale = 1 / math.sqrt(q:extent("dim"))
      local s = (q:dot(c.ksum) * scale):max("head")
      -- What the tokens of a page weigh together, and what its summary does.
      local exact = (q:dot(c.k) * scale):exp():sum("token"):log() - q:dot(c.ksum) * scale
      return sluice.cover{k = c.ksum, v = c.vsum, tail = 20, )" +
                                    options + R"(}
    end
    return flow)",
                                "x.lua");
  const oracle::Row row{numbers.query, numbers.keys, numbers.values, kTokens};
  oracle::States states;
  return oracle::attention(graph, row, oracle::run(graph, row, states), 1 / std::sqrt(double(kDim)));
}

std::vector<double> dense(const Numbers& numbers) {
  std::vector<oracle::Entry> entries;
  for (size_t token = 0; token < kTokens; ++token) {
    entries.push_back(
        {std::span(numbers.keys).subspan(token * kDim, kDim), std::span(numbers.values).subspan(token * kDim, kDim), {}});
  }
  return oracle::attention(numbers.query, entries, 1 / std::sqrt(double(kDim)));
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

constexpr const char* kRefinements[] = {"refine = 'none'", "refine = 'all'", "refine = sluice.topk(s, {k = 3})",
                                        "refine = sluice.threshold(s, {above = 0.1})"};

TEST(CoverReference, PagesOfOneKeyAreAsDense) {
  Numbers numbers(1);
  numbers.repeat(numbers.keys);
  for (const std::string refine : kRefinements) {
    for (const char* mass : {"preserve", "renormalise"}) {
      EXPECT_LT(distance(attended(refine + ", mass = '" + mass + "'", numbers), dense(numbers)), 1e-6) << refine << ", " << mass;
    }
  }
  // Without the count a page weighs what one token does.
  EXPECT_GT(distance(attended("refine = 'none', bias = 'none'", numbers), dense(numbers)), 0.01);
}

TEST(CoverReference, WhatIsOpenedWholeIsDense) {
  const Numbers numbers(2);
  EXPECT_LT(distance(attended("refine = 'all', mass = 'renormalise'", numbers), dense(numbers)), 1e-12);
  EXPECT_LT(distance(attended("refine = 'all', bias = exact", numbers), dense(numbers)), 1e-5);
  EXPECT_GT(distance(attended("refine = 'all'", numbers), dense(numbers)), 0.01) << "means do not weigh what their tokens do";
}

// Where all tokens of a page have one value, what is opened changes nothing: each page weighs what it did.
TEST(CoverReference, RefinementLeavesTheMassOfPages) {
  Numbers numbers(3);
  numbers.repeat(numbers.values);
  const std::vector<double> closed = attended("refine = 'none'", numbers);
  for (const std::string refine : kRefinements) {
    EXPECT_LT(distance(attended(refine, numbers), closed), 1e-6) << refine;
  }
  EXPECT_GT(distance(attended("refine = sluice.topk(s, {k = 3}), mass = 'renormalise'", numbers), closed), 0.01);
}

constexpr const char* kMasses[] = {"preserve", "renormalise"};

// The rule is what a user may ask for; seven pages have summaries: the last four of eleven are raw.
std::string two_levels(int group, const std::string& open, const std::string& refine, const std::string& mass,
                       const std::string& more = "") {
  return refine + ", mass = '" + mass + "', levels = 2, group = " + std::to_string(group) + ", open = " + open + more;
}

TEST(CoverReference, GroupsOfOnePageAreOneLevel) {
  const Numbers numbers(4);
  for (const std::string refine : kRefinements) {
    for (const std::string mass : kMasses) {
      for (const std::string more : {"", ", bias = 'none'", ", bias = exact"}) {
        const std::vector<double> one = attended(refine + ", mass = '" + mass + "'" + more, numbers);
        EXPECT_EQ(distance(attended(two_levels(1, "'none'", refine, mass, more), numbers), one), 0) << refine << ", " << mass;
        EXPECT_EQ(distance(attended(two_levels(1, "sluice.topk(s, {k = 2})", refine, mass, more), numbers), one), 0);
        EXPECT_GT(distance(attended(two_levels(2, "'none'", "refine = 'none'", mass, more), numbers),
                           attended("refine = 'none', mass = '" + mass + "'" + more, numbers)),
                  1e-4)
            << "of two pages the groups do count";
      }
    }
  }
}

TEST(CoverReference, OpenGroupsAreOneLevel) {
  const Numbers numbers(5);
  for (const std::string refine : kRefinements) {
    EXPECT_LT(distance(attended(two_levels(3, "'all'", refine, "renormalise"), numbers),
                       attended(refine + ", mass = 'renormalise'", numbers)),
              1e-12);
  }
  EXPECT_LT(distance(attended(two_levels(4, "'none'", "refine = 'all'", "renormalise"), numbers), dense(numbers)), 1e-12);
}

// Pages whose keys and values are alike weigh together what they do one by one.
TEST(CoverReference, GroupsOfEqualPagesAreDense) {
  Numbers numbers(6);
  numbers.repeat(numbers.keys, 32);
  for (const std::string refine : kRefinements) {
    for (const std::string mass : kMasses) {
      for (const std::string open : {"'none'", "'all'", "sluice.topk(s, {k = 2})"}) {
        EXPECT_LT(distance(attended(two_levels(2, open, refine, mass), numbers), dense(numbers)), 1e-6)
            << refine << ", " << mass << ", " << open;
      }
    }
  }
  EXPECT_GT(distance(attended(two_levels(4, "'none'", "refine = 'none'", "preserve"), numbers), dense(numbers)), 0.01);
}

// Where all pages of a group have one value, what is opened changes nothing: each group weighs what it did.
TEST(CoverReference, OpeningLeavesTheMassOfGroups) {
  Numbers numbers(7);
  numbers.repeat(numbers.values, 64);
  for (const std::string more : {"", ", bias = 'none'"}) {
    const std::vector<double> closed = attended(two_levels(4, "'none'", "refine = 'none'", "preserve", more), numbers);
    for (const std::string refine : kRefinements) {
      for (const std::string open : {"'none'", "'all'", "sluice.topk(s, {k = 2})"}) {
        EXPECT_LT(distance(attended(two_levels(4, open, refine, "preserve", more), numbers), closed), 1e-6) << refine << open;
      }
    }
    EXPECT_GT(distance(attended(two_levels(4, "'all'", "refine = 'none'", "renormalise", more), numbers), closed), 0.01);
  }
}

}  // namespace
}  // namespace sluice
