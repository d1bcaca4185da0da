// Which rows of a prompt that is partly copied are computed.
#include "host/serving/segment_reuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "tests/support/recompute_rules.h"

namespace sluice {
namespace {

using testing::rule_of;
using testing::shipped_rule;

constexpr int kHeads = 2;

/// 0 to 7 known exactly, 8 to 15 new, 16 to 31 copied, 32 to 35 new, 36 to 43 copied, and a last new one if it `ends`.
CopiedTokens tokens(bool ends) {
  CopiedTokens made;
  made.copied.assign(ends ? 45 : 44, 0);
  std::fill(made.copied.begin() + 16, made.copied.begin() + 32, 1);
  std::fill(made.copied.begin() + 36, made.copied.begin() + 44, 1);
  made.moved.assign(made.copied.size(), 0);
  std::fill(made.moved.begin() + 16, made.moved.begin() + 32, -100);
  std::fill(made.moved.begin() + 36, made.moved.begin() + 44, 7);
  made.begun = 8;
  made.block = 8;
  made.firsts = {16, 36};
  return made;
}

std::vector<int32_t> numbers(std::initializer_list<std::pair<int, int>> ranges) {
  std::vector<int32_t> all;
  for (const auto& [first, end] : ranges) {
    for (int i = first; i < end; ++i) all.push_back(i);
  }
  return all;
}

ParameterValues with_share(const std::string& share) { return {{"page", "8"}, {"share", share}}; }

/// Those that a rule has computed where each head gives a copied token the score of its position.
std::vector<int32_t> rows(const CopiedTokens& tokens, const RecomputeRule* rule, const std::map<int, float>& scores = {}) {
  const auto fill = [&](CopyFact, std::span<float> numbers) {
    const std::vector<int32_t> places = tokens.places();
    const size_t heads = rule->sums_heads() ? 1 : kHeads;
    ASSERT_EQ(numbers.size(), places.size() * heads);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto found = scores.find(places[i / heads]);
      numbers[i] = found == scores.end() ? 0 : found->second;
    }
  };
  return rows_to_compute(tokens, rule, 1, tokens.looking_rows(kToEnd), fill);
}

TEST(SegmentReuse, RowsThatLookAreThoseThatAreNotCopied) {
  EXPECT_EQ(tokens(true).looking_rows(kToEnd), numbers({{8, 16}, {32, 36}, {44, 45}}));
  EXPECT_EQ(tokens(true).looking_rows(3), numbers({{34, 36}, {44, 45}}));
  EXPECT_EQ(tokens(true).count(), 24);
  EXPECT_EQ(tokens(false).looking_rows(kToEnd), numbers({{8, 44}})) << "a prompt that ends with copies looks from its end";
}

TEST(SegmentReuse, APromptThatEndsWithKnownTextLooksFromItsEndThoughItsLastBlockIsNot) {
  CopiedTokens made = tokens(true);  // the last of its tokens is new
  EXPECT_EQ(made.looking_rows(kToEnd), numbers({{8, 16}, {32, 36}, {44, 45}}));
  made.ends_known = true;
  EXPECT_EQ(made.looking_rows(kToEnd), numbers({{8, 45}}));
}

TEST(SegmentReuse, RulesOfPlacesGoByNothing) {
  const auto none = shipped_rule("none", kHeads);
  EXPECT_EQ(rows(tokens(true), none.get()), numbers({{8, 16}, {32, 36}, {44, 45}}));
  EXPECT_EQ(rows(tokens(false), none.get()), numbers({{8, 16}, {32, 36}}));
  EXPECT_EQ(rows(tokens(true), shipped_rule("all", kHeads).get()), numbers({{8, 45}}));
  EXPECT_EQ(rows(tokens(true), nullptr), numbers({{8, 45}}));
  const auto epic = shipped_rule("epic", kHeads, {{"page", "8"}, {"edge", "3"}});
  EXPECT_FALSE(epic->reads_layer());
  EXPECT_EQ(rows(tokens(true), epic.get()), numbers({{8, 24}, {32, 45}})) << "the blocks that they are in";
}

TEST(SegmentReuse, TheBestAreChosenAmongCopiesAlone) {
  const std::map<int, float> scores = {{3, 100.0F}, {10, 100.0F}, {33, 100.0F}, {20, 5.0F}, {40, 4.0F}, {25, 4.0F}, {30, NAN}};
  EXPECT_EQ(rows(tokens(true), shipped_rule("cacheblend", kHeads, with_share("0.08")).get(), scores),
            numbers({{8, 16}, {20, 21}, {25, 26}, {32, 36}, {44, 45}}))
      << "of equals the older";
  EXPECT_EQ(rows(tokens(true), shipped_rule("cacheblend", kHeads, with_share("0")).get(), scores),
            numbers({{8, 16}, {32, 36}, {44, 45}}));
  EXPECT_EQ(rows(tokens(true), shipped_rule("cacheblend", kHeads, with_share("1")).get(), scores), numbers({{8, 45}}));
}

TEST(SegmentReuse, SparseXTakesABlockOnEitherSide) {
  const auto rule = shipped_rule("sparsex", kHeads, with_share("0"));
  EXPECT_EQ(rows(tokens(true), rule.get()), numbers({{8, 45}}))
      << "16 to 23 follow what is new, 24 to 31 and 36 to 43 lie beside it";
  CopiedTokens far;
  far.copied.assign(202, 1);
  far.moved.assign(202, 0);
  far.copied[96] = far.copied[201] = 0;
  far.firsts = {0, 97};
  far.block = 8;
  EXPECT_EQ(rows(far, rule.get()), numbers({{88, 105}, {193, 202}}));
  const auto some = shipped_rule("sparsex_nohybrid", kHeads, with_share("0.01"));
  EXPECT_EQ(some->rule().layer, 0);
  EXPECT_EQ(rows(far, some.get(), {{50, 1.0F}, {60, 2.0F}, {3, 3.0F}}), numbers({{3, 4}, {60, 61}, {88, 105}, {193, 202}}))
      << "two of the 200, and what stands beside new text";
}

TEST(SegmentReuse, ATailThatLooksIsComputed) {
  CopiedTokens made;
  made.copied.assign(160, 1);
  made.moved.assign(160, 0);
  made.copied[0] = 0;
  std::fill(made.copied.begin(), made.copied.begin() + 8, 0);
  made.firsts = {8};
  made.block = 8;
  EXPECT_EQ(rows(made, shipped_rule("sparsex", kHeads, with_share("0")).get()), numbers({{0, 16}, {96, 160}}));
}

/// What is known of the copied tokens of random prompts, beside a search of each by itself.
TEST(SegmentReuse, FactsAreWhatASearchFinds) {
  std::mt19937 random(5);  // NOLINT: the same prompts every time
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
  for (int round = 0; round < 200; ++round) {
    CopiedTokens made;
    made.block = 8 << draw(0, 1);
    made.begun = draw(0, 1) * draw(0, 40);
    made.copied.assign(static_cast<size_t>(made.begun), 0);
    for (int part = draw(1, 6); part > 0; --part) {
      made.copied.insert(made.copied.end(), static_cast<size_t>(draw(0, 1) * draw(0, 20)), 0);
      const int run = draw(0, 4) * made.block;
      if (run > 0) made.firsts.push_back(static_cast<int32_t>(made.copied.size()));
      made.copied.insert(made.copied.end(), static_cast<size_t>(run), 1);
    }
    made.moved.assign(made.copied.size(), 0);
    for (int& each : made.moved) each = draw(-50, 50);
    const std::vector<int32_t> places = made.places();
    const std::vector<int32_t> looking = made.looking_rows(draw(0, 1) == 0 ? kToEnd : draw(1, 70));
    const auto is_new = [&](int token) {
      return token >= made.begun && token < static_cast<int>(made.copied.size()) && made.copied[static_cast<size_t>(token)] == 0;
    };
    const auto to_new = [&](int token, int step) {
      for (int at = token; at >= 0 && at < static_cast<int>(made.copied.size()); at += step) {
        if (is_new(at)) return static_cast<float>(std::abs(at - token));
      }
      if (step > 0) return static_cast<float>(made.copied.size()) - static_cast<float>(token);  // the last of the prompt
      return INFINITY;
    };
    const auto first_of = [&](int token) { return *std::prev(std::upper_bound(made.firsts.begin(), made.firsts.end(), token)); };
    const auto last_of = [&](int token) {
      while (token + 1 < static_cast<int>(made.copied.size()) && made.copied[static_cast<size_t>(token) + 1] != 0 &&
             first_of(token + 1) == first_of(token))
        ++token;
      return token;
    };
    const auto check = [&](CopyFact fact, const auto& wanted) {
      std::vector<float> found(places.size());
      fill_fact(fact, made, looking, found);
      for (size_t i = 0; i < places.size(); ++i)
        ASSERT_EQ(found[i], static_cast<float>(wanted(places[i]))) << copy_facts()[size_t(fact)].name << " of " << places[i];
    };
    check(CopyFact::kPosition, [](int token) { return token; });
    check(CopyFact::kMoved, [&](int token) { return made.moved[static_cast<size_t>(token)]; });
    check(CopyFact::kFromEdge, [&](int token) { return token - first_of(token); });
    check(CopyFact::kToEdge, [&](int token) { return last_of(token) - token; });
    check(CopyFact::kFromNew, [&](int token) { return to_new(token, -1); });
    check(CopyFact::kToNew, [&](int token) { return to_new(token, 1); });
    check(CopyFact::kLooks, [&](int token) { return std::count(looking.begin(), looking.end(), token); });
  }
  std::vector<float> one(24);
  EXPECT_THROW(fill_fact(CopyFact::kMass, tokens(true), {}, one), InternalError);
  EXPECT_THROW(fill_fact(CopyFact::kMoved, tokens(true), {}, std::span(one).first(3)), InternalError);
}

TEST(SegmentReuse, ARuleOfOnesOwnSelectsByWhatItAsksFor) {
  const auto rule = rule_of(R"(
    local flow = sluice.flow { name = "mine", page = 8, layers = { rest = "full" }, recompute = { layer = 3, rows = 2 } }
    function flow.recompute(r)
      local unused = r.value_change
      return sluice.topk_tokens(sluice.where_gt(r.moved, 0, r.position, -1), { k = 3 })
    end
    return flow)",
                            kHeads);
  EXPECT_EQ(rule->rule().layer, 3);
  EXPECT_EQ(rule->rule().rows, 2);
  EXPECT_FALSE(rule->reads_layer()) << "what is not used is not asked for";
  EXPECT_EQ(rows(tokens(true), rule.get()), numbers({{8, 16}, {32, 36}, {41, 45}}));
}

}  // namespace
}  // namespace sluice
