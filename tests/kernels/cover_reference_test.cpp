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
  /// The first token of a page stands in place of all.
  void repeat(std::vector<float>& numbers) const {
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = numbers[i / (16 * kDim) * (16 * kDim) + i % kDim];
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

}  // namespace
}  // namespace sluice
