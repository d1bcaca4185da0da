#include "scripting/pattern/analysis.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "scripting/base/error.h"
#include "scripting/pattern/text.h"
#include "tests/scripting/pattern/boolean_matrix.h"

namespace sluice::test {
namespace {

/// What the analysis says, by looking at every query.
void expect_as_brute_force(const PatternAnalysis& analysis, int length) {
  const BooleanMatrix seen = BooleanMatrix::of(analysis.pattern(), length);
  std::vector<int32_t> last(static_cast<size_t>(length), -1);
  int blind = 0;
  for (int i = 0; i < length; ++i) {
    bool any = false;
    for (int j = 0; j <= i; ++j) {
      if (!seen.at(i, j)) continue;
      last[static_cast<size_t>(j)] = i;
      any = true;
    }
    blind += any ? 0 : 1;
  }
  int most = 0;
  for (int i = 0; i < length; ++i) {
    int live = 0;
    for (int j = 0; j <= i; ++j) live += last[static_cast<size_t>(j)] >= i ? 1 : 0;
    most = std::max(most, live);
  }
  ASSERT_EQ(analysis.last_readers(length), last);
  EXPECT_EQ(analysis.blind_rows(length), blind);
  EXPECT_EQ(analysis.live_tokens(length), most);
  const auto size = analysis.size_for_any_length();
  if (size && length >= size->from) {
    EXPECT_EQ(size->at(length), most);
  }
}

Pattern strided_blocks(int block, int stride) {
  return Pattern::blocks(block, 1) & Pattern::rect({.row_stride = stride, .column_stride = stride});
}

TEST(PatternAnalysis, RandomExpressionsAreAsBruteForceHasThem) {
  std::mt19937 random(33);
  int by_rows = 0;
  for (int run = 0; run < 1000; ++run) {
    const Pattern pattern = random_pattern(random, 1 + static_cast<int>(random() % 4));
    const int length = 1 + static_cast<int>(random() % 200);
    const PatternAnalysis analysis(pattern);
    expect_as_brute_force(analysis, length);
    by_rows += analysis.is_for_any_length() ? 0 : 1;
    if (testing::Test::HasFatalFailure()) FAIL() << run;
  }
  EXPECT_LT(by_rows, 200);
}

// isl 0.25 takes the first two columns and every second one for all of them.
TEST(PatternAnalysis, AFewTokensBesideAStride) {
  for (int size = 1; size <= 4; ++size) {
    for (int stride = 2; stride <= 6; ++stride) {
      for (const int offset : {0, 1}) {
        const Pattern columns =
            Pattern::rect({.columns = size}) | Pattern::rect({.column_stride = stride, .column_offset = offset});
        const Pattern rows = Pattern::rect({.rows = size}) | Pattern::rect({.row_stride = stride, .row_offset = offset});
        for (const Pattern& both : {columns, rows}) {
          for (const Pattern& pattern : {both, ~both, Pattern::window(3) | ~both, both & Pattern::window(1)}) {
            expect_as_brute_force(PatternAnalysis(pattern), 67);
            if (testing::Test::HasFatalFailure()) FAIL() << size << " beside every " << stride << "th from " << offset;
          }
        }
      }
    }
  }
}

TEST(PatternAnalysis, ARuleForAllLengthsHoldsBetweenEqualDistances) {
  const PatternAnalysis analysis(
      Pattern::spread(Pattern::rect({.rows = 500, .columns = 500}), Pattern::rect({.column_stride = 2})) |
      Pattern::rect({.rows = 1, .columns = 1, .row_stride = 16000, .column_stride = 16000}));
  const auto size = analysis.size_for_any_length();
  for (const int length : {66000, 66250, 66500, 66750}) {
    if (size && length >= size->from) EXPECT_EQ(size->at(length), analysis.live_tokens(length)) << length;
  }
}

TEST(PatternAnalysis, ARuleForAllLengthsHoldsForEachOfThem) {
  struct Row {
    Pattern pattern;
    const char* rule;
  };
  const auto every = [](int stride, int offset) { return Pattern::rect({.column_stride = stride, .column_offset = offset}); };
  for (const Row& row : {Row{every(1000, 998), "(n + 1) / 1000 tokens"},
                         {every(512, 510) | Pattern::window(512), "(n + 1) / 512 + 511 tokens"},
                         {~Pattern::sink(41), "n - 41 tokens"},
                         {every(6, 1) | every(6, 4), "(n + 1) / 3 tokens"}}) {
    const PatternAnalysis analysis(row.pattern);
    const auto size = analysis.size_for_any_length();
    if (size) EXPECT_EQ(to_text(*size), row.rule);
    for (int length = 1; size && length < 6000; length += length < 2500 ? 1 : 7) {
      if (length >= size->from) ASSERT_EQ(size->at(length), analysis.live_tokens(length)) << row.rule << " at " << length;
      if (length == size->from - 1) ASSERT_NE(size->at(length), analysis.live_tokens(length)) << row.rule << " at " << length;
    }
  }
  std::mt19937 random(36);
  int rules = 0;
  for (int run = 0; run < 60; ++run) {
    const PatternAnalysis analysis(random_pattern(random, 1 + static_cast<int>(random() % 3)));
    const auto size = analysis.size_for_any_length();
    if (!size || size->from > 3000) continue;
    ++rules;
    for (int64_t length = size->from; length < size->from + 2 * size->period && length < 4000; ++length) {
      ASSERT_EQ(size->at(length), analysis.live_tokens(static_cast<int>(length)))
          << to_text(analysis.pattern()) << " at " << length;
    }
  }
  EXPECT_GT(rules, 20);
}

// What is kept near the beginning hides for long what grows slowly.
TEST(PatternAnalysis, ARuleForAllLengthsKnowsOfGrowthBehindAnEarlyBurst) {
  const auto first_rows = [](int rows) { return Pattern::rect({.rows = rows, .columns = rows}); };
  int rules = 0;
  const auto holds = [&](const Pattern& pattern) {
    const PatternAnalysis analysis(pattern);
    const auto size = analysis.size_for_any_length();
    rules += size ? 1 : 0;
    for (int64_t length = 1; size && length < 200'000; length += 1 + length / 7) {
      if (length < size->from) continue;
      ASSERT_EQ(size->at(length), analysis.live_tokens(static_cast<int>(length))) << to_text(pattern) << " at " << length;
    }
  };
  holds(first_rows(64) | Pattern::fixed(16));
  holds((first_rows(1000) & Pattern::window(1000)) | Pattern::rect({.column_stride = 100, .column_offset = 99}));
  EXPECT_TRUE(PatternAnalysis(first_rows(64) | Pattern::window(7)).size_for_any_length()) << "nothing grows behind it";
  std::mt19937 random(38);
  for (int run = 0; run < 60; ++run) {
    const int rows = 1 + static_cast<int>(random() % 2000);
    const int stride = 1 + static_cast<int>(random() % 60);
    const Pattern grows = run % 2 == 0 ? Pattern::fixed(stride) : Pattern::rect({.column_stride = stride});
    holds(first_rows(rows) | grows | Pattern::window(1 + static_cast<int>(random() % 100)));
    if (testing::Test::HasFatalFailure()) FAIL() << run;
  }
  EXPECT_GT(rules, 40) << "of 62";
}

TEST(PatternAnalysis, WhatIsTooComplexIsLookedAtRowByRow) {
  std::mt19937 random(35);
  for (int run = 0; run < 300; ++run) {
    const PatternAnalysis analysis(random_pattern(random, 1 + static_cast<int>(random() % 12)), {.operations = 1});
    ASSERT_FALSE(analysis.is_for_any_length());
    expect_as_brute_force(analysis, 1 + static_cast<int>(random() % 200));
    if (testing::Test::HasFatalFailure()) FAIL() << run;
  }
}

TEST(PatternAnalysis, KnowsManyPeriodsAsRowsDo) {
  std::mt19937 random(36);
  const auto upto = [&](int most) { return 1 + static_cast<int>(random() % static_cast<unsigned>(most)); };
  const auto part = [&] {
    switch (random() % 5) {
      case 0:
        return Pattern::diag({.offset = -upto(300), .size = upto(900), .stride = upto(40)});
      case 1:
        return Pattern::rect({.rows = upto(9000), .columns = upto(9000), .row_stride = upto(12), .column_stride = upto(7)});
      case 2:
        return Pattern::blocks(upto(100), upto(4));
      case 3:
        return Pattern::strided(upto(300), upto(90));
      default:
        return Pattern::fixed(upto(100));
    }
  };
  int for_any_length = 0;
  for (int run = 0; run < 60; ++run) {
    Pattern pattern = part();
    if (run % 2 == 0) pattern = run % 4 == 0 ? pattern & part() : pattern | part();
    const PatternAnalysis analysis(pattern);
    const PatternAnalysis by_rows(pattern, {.operations = 1});
    for_any_length += analysis.is_for_any_length() ? 1 : 0;
    const int length = run % 10 == 0 ? 20'000 + upto(10'000) : 4000 + upto(4000);
    EXPECT_EQ(analysis.last_readers(length), by_rows.last_readers(length)) << to_text(pattern);
    EXPECT_EQ(analysis.live_tokens(length), by_rows.live_tokens(length)) << to_text(pattern);
    EXPECT_EQ(analysis.blind_rows(length), by_rows.blind_rows(length)) << to_text(pattern);
  }
  EXPECT_GE(for_any_length, 40);
}

TEST(PatternAnalysis, KnowsTheCachesOfThePaper) {
  struct Row {
    const char* name;
    Pattern pattern;
    int live;  // at 16384 tokens
    const char* any_length;
  };
  for (const Row& row :
       {Row{"sink and window", Pattern::sink(32) | Pattern::window(1024), 1056, "1056 tokens, whatever the length"},
        {"block local", Pattern::blocks(128, 3), 384, "384 tokens, whatever the length"},
        {"window", Pattern::window(1024), 1024, "1024 tokens, whatever the length"},
        {"strided", Pattern::strided(512, 512), 16384 - 511, "n - 511 tokens"},
        {"fixed", Pattern::fixed(256), 319, "n / 256 + 255 tokens"},
        {"fixed, same residue", Pattern::blocks(256, 1) | Pattern::diag({.stride = 256}), 16384 - 255, "n - 255 tokens"},
        {"strided block-local", strided_blocks(256, 4), 64, "64 tokens, whatever the length"}}) {
    const PatternAnalysis analysis(row.pattern);
    EXPECT_EQ(analysis.live_tokens(16384), row.live) << row.name;
    const auto size = analysis.size_for_any_length();
    ASSERT_TRUE(size) << row.name;
    EXPECT_EQ(to_text(*size), row.any_length) << row.name;
    EXPECT_EQ(size->at(16384), row.live) << row.name;
  }
  EXPECT_EQ(PatternAnalysis(strided_blocks(256, 4)).blind_rows(16384), 16384 / 4 * 3);
}

TEST(PatternAnalysis, GivesTheLowestFreeSlotAndNoMoreThanAreNeeded) {
  std::mt19937 random(34);
  for (int run = 0; run < 100; ++run) {
    const Pattern pattern = random_pattern(random, 2);
    const std::vector<int32_t> last = PatternAnalysis(pattern).last_readers(150);
    const std::vector<int32_t> slots = slots_of(last);
    EXPECT_EQ(*std::max_element(slots.begin(), slots.end()) + 1, most_live(last));
    std::vector<int> lives_until(last.size(), -1);
    for (size_t j = 0; j < last.size(); ++j) {
      ASSERT_EQ(slots[j] < 0, last[j] < 0);
      if (slots[j] < 0) continue;
      int& until = lives_until[static_cast<size_t>(slots[j])];
      ASSERT_LT(until, static_cast<int>(j)) << "a slot is written while its token lives";
      until = last[j];
    }
  }
}

TEST(PatternAnalysis, RefusesWhatTakesTooLong) {
  Pattern pattern = Pattern::diag({.stride = 2});
  for (const int stride : {3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37}) {
    pattern = ~pattern & Pattern::rect({.column = stride, .row_stride = stride, .column_stride = stride + 2});
    pattern = pattern | Pattern::diag({.offset = stride, .stride = stride});
  }
  const PatternAnalysis analysis(pattern);
  EXPECT_FALSE(analysis.is_for_any_length());
  EXPECT_FALSE(analysis.size_for_any_length());
  expect_as_brute_force(analysis, 300);
  EXPECT_THROW(analysis.live_tokens(1 << 20), InputError);
}

}  // namespace
}  // namespace sluice::test
