// Rules that say what is computed again, beside the float64 evaluator of the same graphs.
#include "kernels/device/recompute_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "kernels/reference/oracle.h"
#include "scripting/base/error.h"
#include "scripting/graph/selections.h"
#include "tests/support/recompute_rules.h"

namespace sluice {
namespace {

constexpr int kHeads = 3;

/// What the reference selects, as tokens.
std::vector<int32_t> wanted(const FlowGraph& graph, int blocks, const std::map<CopyFact, std::vector<float>>& facts) {
  const int page = graph.geometry.page;
  oracle::States states;
  for (const State& state : graph.states) {
    oracle::Tensor tensor{state.shape, {}};
    tensor.shape.front().extent = blocks;
    for (const float number : facts.at(find_copy_fact(state.name)->fact)) tensor.values.push_back({number, 0});
    states[state.name] = std::move(tensor);
  }
  const std::vector<float> query(static_cast<size_t>(graph.geometry.group) * static_cast<size_t>(graph.geometry.head_dim));
  const oracle::Row row{.query = query, .keys = {}, .values = {}, .tokens = blocks * page};
  const oracle::Result result = oracle::run(graph, row, states);
  return is_of_tokens(graph, graph.selection()) ? result.selected
                                                : oracle::tokens_of_pages(graph, result.selected, blocks * page);
}

std::string flow_that(const std::string& body, int page) {
  return "local flow = sluice.flow { name = \"rule\", page = " + std::to_string(page) +
         ", layers = { rest = \"full\" } }\nfunction flow.recompute(r)\n" + body + "\nend\nreturn flow\n";
}

TEST(RecomputeRule, SelectsWhatTheReferenceDoes) {
  std::mt19937 random(3);  // NOLINT: the same facts every time
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
  const std::vector<std::string> bodies = {
      "return sluice.topk_tokens(r.mass:sum('head'), {ratio = 0.15})",
      "return sluice.topk_tokens(r.key_change:max('head') + r.value_change:sum('head'), {k = 5, last = 3})",
      "return sluice.topk(r.mass:sum('head'):max('token'), {k = 2})",
      "return sluice.threshold(r.moved:max('token'), {above = 2})",
      "return sluice.threshold(r.position:min('token'), {above = math.huge})",
      "return sluice.topk_tokens(r.position, {k = 0})",
      "return sluice.topk_tokens(r.position, {ratio = 1})",
      "return sluice.window{last = 1}",
      "return sluice.topp(sluice.relu(r.mass:sum('head'):sum('token')), {p = 0.5})",
      "local s = r.mass:mean('head') return sluice.topk_tokens(sluice.where_gt(r.to_edge, 2, s, -1), {k = 4})",
      "return sluice.union(sluice.topk_tokens(-r.from_edge, {k = 3}), sluice.threshold(r.looks:max('token'), {above = 0}))",
      "return sluice.union(sluice.topk(r.to_new:min('token'), {k = 1}), sluice.window{first = 1})",
      "return sluice.topk_tokens(r.from_new - r.from_new:mean('token'), {ratio = 0.5, first = 2})"};
  for (const std::string& body : bodies) {
    for (const int page : {8, 16}) {
      const auto rule = testing::rule_of(flow_that(body, page), kHeads);
      for (int round = 0; round < 20; ++round) {
        const int blocks = draw(1, 30);
        std::map<CopyFact, std::vector<float>> facts;
        for (const CopyFactInfo& info : copy_facts()) {
          std::vector<float>& numbers = facts[info.fact];
          numbers.resize(static_cast<size_t>(blocks * page * (info.by_head ? kHeads : 1)));
          for (float& number : numbers) number = static_cast<float>(draw(-8, 8));
        }
        const auto fill = [&](CopyFact fact, std::span<float> numbers) {
          EXPECT_TRUE(rule->reads(fact));
          const std::vector<float>& all = facts.at(fact);
          if (!rule->sums_heads() || all.size() == static_cast<size_t>(blocks * page)) {
            ASSERT_EQ(numbers.size(), all.size());
            std::copy(all.begin(), all.end(), numbers.begin());
            return;
          }
          ASSERT_EQ(numbers.size() * kHeads, all.size());
          for (size_t i = 0; i < numbers.size(); ++i)
            numbers[i] = std::accumulate(all.begin() + ptrdiff_t(i * kHeads), all.begin() + ptrdiff_t((i + 1) * kHeads), 0.0F);
        };
        ASSERT_EQ(rule->select(blocks, 1, fill), wanted(rule->rule().graph, blocks, facts))
            << body << ", " << blocks << " blocks";
      }
    }
  }
}

TEST(RecomputeRule, SaysWhatItReads) {
  const auto none = testing::rule_of(flow_that("return 'none'", 8), kHeads);
  EXPECT_FALSE(none->reads_layer());
  EXPECT_THROW(none->select(1, 0, {}), InternalError);
  const auto places = testing::rule_of(flow_that("return sluice.topk_tokens(r.moved, {k = 1})", 8), kHeads);
  EXPECT_TRUE(places->reads(CopyFact::kMoved));
  EXPECT_FALSE(places->reads_layer());
  EXPECT_TRUE(places->select(0, 0, {}).empty());
  const auto masses = testing::rule_of(flow_that("return sluice.topk_tokens(r.mass:sum('head'), {k = 1})", 8), kHeads);
  EXPECT_TRUE(masses->reads_layer());
  EXPECT_TRUE(masses->sums_heads());
  for (const char* const other :
       {"r.mass:max('head')", "r.mass:sum('head') + r.key_change:mean('head')", "(2 * r.mass):sum('head')"}) {
    const std::string body = "return sluice.topk_tokens(" + std::string(other) + ", {k = 1})";
    EXPECT_FALSE(testing::rule_of(flow_that(body, 8), kHeads)->sums_heads()) << other;
  }
}

TEST(RecomputeRule, SeesAsManyHeadsAsModelsHave) {
  for (const int heads : {17, 32, 40, 64}) {
    const auto rule = testing::shipped_rule("sparsex", heads);
    EXPECT_TRUE(rule->reads_heads());
    EXPECT_TRUE(rule->sums_heads());
    constexpr int kBlocks = 3;
    const auto fill = [&](CopyFact fact, std::span<float> numbers) {
      std::fill(numbers.begin(), numbers.end(), fact == CopyFact::kMass ? 0.0F : 100.0F);
      if (fact == CopyFact::kLooks) std::fill(numbers.begin(), numbers.end(), 0.0F);
      if (fact == CopyFact::kMass) numbers[20] = 1;
    };
    const std::vector<int32_t> chosen = rule->select(kBlocks, 1, fill);
    EXPECT_EQ(chosen.size(), 8U) << "0.15 of 48 tokens";
    EXPECT_TRUE(std::binary_search(chosen.begin(), chosen.end(), 20));
    EXPECT_GT(rule->bytes(1000), rule->bytes(10));
  }
}

TEST(RecomputeRule, DrawsTheSameForASeed) {
  const auto rule = testing::rule_of(flow_that("return sluice.topk(sluice.random(), {k = 3})", 8), kHeads);
  const std::vector<int32_t> first = rule->select(40, 1, {});
  EXPECT_EQ(first, rule->select(40, 1, {}));
  EXPECT_NE(first, rule->select(40, 2, {}));
}

}  // namespace
}  // namespace sluice
