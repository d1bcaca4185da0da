#include "scripting/pattern/pattern.h"

#include <gtest/gtest.h>

#include "scripting/base/bits.h"
#include "scripting/base/error.h"
#include "scripting/pattern/text.h"
#include "tests/scripting/pattern/boolean_matrix.h"

namespace sluice::test {
namespace {

/// By rows, as masks are made of it.
BooleanMatrix rows_of(const Pattern& pattern, int length) {
  BooleanMatrix result(length, length);
  std::vector<uint32_t> words(static_cast<size_t>((length + 31) / 32) + 1, ~uint32_t{0});
  for (int i = 0; i < length; ++i) {
    pattern.row(i, length, words);
    for (int j = 0; j < length; ++j) result.set(i, j, (words[static_cast<size_t>(j / 32)] >> (j % 32) & 1) != 0);
    EXPECT_EQ(words.back(), 0U);
  }
  return result;
}

/// Some keys of a row, which need not begin where a word does.
void expect_part_of_row(const Pattern& pattern, const BooleanMatrix& expected, std::mt19937& random) {
  const int length = expected.rows();
  const int i = static_cast<int>(random() % static_cast<unsigned>(length));
  const int begin = static_cast<int>(random() % static_cast<unsigned>(length));
  const int end = begin + static_cast<int>(random() % static_cast<unsigned>(length - begin + 1));
  std::vector<uint32_t> words(static_cast<size_t>((end - begin + 31) / 32) + 1, ~uint32_t{0});
  pattern.row(i, begin, end, words);
  for (int bit = 0; bit < static_cast<int>(32 * words.size()); ++bit) {
    const bool wanted = begin + bit < end && expected.at(i, begin + bit);
    ASSERT_EQ((words[static_cast<size_t>(bit / 32)] >> (bit % 32) & 1) != 0, wanted)
        << i << ", " << begin << " to " << end << ", " << bit;
  }
}

BooleanMatrix by_rule(int length, const std::function<bool(int, int)>& rule) {
  BooleanMatrix result(length, length);
  for (int i = 0; i < length; ++i) {
    for (int j = 0; j <= i; ++j) result.set(i, j, rule(i, j));
  }
  return result;
}

TEST(Pattern, NamesMeanWhatTheLiteratureSays) {
  constexpr int kLength = 200;
  const auto expect = [](const char* name, const Pattern& pattern, const std::function<bool(int, int)>& rule) {
    EXPECT_EQ(rows_of(pattern, kLength), by_rule(kLength, rule)) << name;
  };
  expect("causal", Pattern::causal(), [](int, int) { return true; });
  expect("sink", Pattern::sink(5), [](int, int j) { return j < 5; });
  expect("window", Pattern::window(17), [](int i, int j) { return i - j < 17; });
  expect("dilated", Pattern::dilated(6, 7), [](int i, int j) { return i - j < 42 && (i - j) % 7 == 0; });
  expect("blocks", Pattern::blocks(16, 3), [](int i, int j) { return i / 16 - j / 16 < 3; });
  expect("strided", Pattern::strided(9, 13), [](int i, int j) { return i - j < 9 || (i - j) % 13 == 0; });
  expect("fixed", Pattern::fixed(11), [](int i, int j) { return i / 11 == j / 11 || j % 11 == 10; });
}

TEST(Pattern, RowsOfAnyRangeAreThoseOfPoints) {
  for (int stride = 1; stride <= 40; ++stride) {
    const Pattern every = Pattern::rect({.column_stride = stride, .column_offset = stride / 2});
    const Pattern block = Pattern::rect({.rows = 3, .columns = 3, .column_stride = stride % 3 + 1});
    for (const Pattern& pattern : {every, Pattern::diag({.offset = 5, .size = 150, .stride = stride}),
                                   Pattern::spread(block, every), Pattern::spread(block, ~every), every & Pattern::sink(70)}) {
      for (const auto& [begin, end] : {std::pair(0, 300), {1, 2}, {31, 33}, {37, 201}, {64, 96}, {299, 300}}) {
        for (const int i : {0, 40, 200, 299}) {
          std::vector<uint32_t> words(static_cast<size_t>((end - begin + 31) / 32));
          pattern.row(i, begin, end, words);
          for (int j = begin; j < end; ++j)
            ASSERT_EQ(has_bit(words, j - begin), pattern.sees(i, j)) << to_text(pattern) << ": " << i << ", " << j;
        }
      }
    }
  }
}

/// Up to 512, short ones more often.
int draw_length(std::mt19937& random) { return 1 + static_cast<int>(random() % (1U << (random() % 10))); }

TEST(Pattern, RandomExpressionsAreTheirBooleanMatrices) {
  std::mt19937 random(31);
  for (int run = 0; run < 10000; ++run) {
    const Pattern pattern = random_pattern(random, 1 + static_cast<int>(random() % 8));
    const int length = draw_length(random);
    const BooleanMatrix expected = BooleanMatrix::of(pattern, length);
    ASSERT_EQ(rows_of(pattern, length), expected) << run;
    expect_part_of_row(pattern, expected, random);
    for (int probe = 0; probe < 50; ++probe) {
      const int i = static_cast<int>(random() % static_cast<unsigned>(length));
      const int j = static_cast<int>(random() % static_cast<unsigned>(length));
      ASSERT_EQ(pattern.sees(i, j), expected.at(i, j)) << run << ": " << i << ", " << j;
    }
    ASSERT_EQ(Pattern::of({pattern.nodes().begin(), pattern.nodes().end()}), pattern);
  }
}

TEST(Pattern, ObeysDeMorgan) {
  std::mt19937 random(32);
  for (int run = 0; run < 300; ++run) {
    const Pattern a = random_pattern(random, 3);
    const Pattern b = random_pattern(random, 3);
    EXPECT_EQ(rows_of(~(a & b), 90), rows_of(~a | ~b, 90));
    EXPECT_EQ(rows_of(~(a | b), 90), rows_of(~a & ~b, 90));
    EXPECT_EQ(rows_of(~~a, 90), rows_of(a, 90));
  }
}

TEST(Pattern, RefusesImpossibleNumbers) {
  const auto refused = [](auto&& make) { EXPECT_THROW(make(), InputError); };
  refused([] { return Pattern::window(0); });
  refused([] { return Pattern::sink(-1); });
  refused([] { return Pattern::diag({.stride = 0}); });
  refused([] { return Pattern::diag({.offset = INT_MIN}); });
  refused([] { return Pattern::rect({.column_stride = 4, .column_offset = 4}); });
  refused([] { return Pattern::rect({.row = -1}); });
  refused([] { return Pattern::rect({.rows = Pattern::kMostNumber + 1}); });
  refused([] { return Pattern::dilated(1 << 20, 1 << 20); });
  refused([] { return Pattern::blocks(0, 1); });
  refused([] { return Pattern::spread(Pattern::sink(4), Pattern::causal()); });
  refused([] { return Pattern::spread(Pattern::window(4), Pattern::causal()); });
}

TEST(Pattern, RefusesForgedNodes) {
  const std::vector<Pattern::Node> fine = {{.kind = Pattern::Kind::kDiag}, {.kind = Pattern::Kind::kNot, .left = 0}};
  EXPECT_NO_THROW(Pattern::of(fine));
  const auto refused = [&](auto&& change) {
    std::vector<Pattern::Node> nodes = fine;
    change(nodes);
    EXPECT_THROW(Pattern::of(nodes), InputError);
  };
  refused([](auto& nodes) { nodes.clear(); });
  refused([](auto& nodes) { nodes[1].left = 1; });
  refused([](auto& nodes) { nodes[1].left = -1; });
  refused([](auto& nodes) { nodes[1] = {.kind = Pattern::Kind::kAnd, .left = 0, .right = 0}; });
  refused([](auto& nodes) { nodes[1] = {.kind = Pattern::Kind::kDiag}; });
  refused([](auto& nodes) { nodes[0].diag.stride = 0; });
  refused([](auto& nodes) { nodes[0].kind = static_cast<Pattern::Kind>(77); });
  refused([](auto& nodes) { nodes.insert(nodes.end(), 300, nodes[0]); });
  refused([](auto& nodes) {
    nodes.push_back({.kind = Pattern::Kind::kDiag});
    nodes.push_back({.kind = Pattern::Kind::kSpread, .left = 1, .right = 2});
  });
}

TEST(Pattern, TellsHowFarApartQueriesSeeTheSame) {
  EXPECT_EQ(Pattern::causal().query_stride(), 0);
  EXPECT_EQ((Pattern::sink(4) | Pattern::window(512)).query_stride(), 0);
  EXPECT_EQ(Pattern::fixed(256).query_stride(), 0) << "queries see columns, and all of them the same";
  EXPECT_EQ(Pattern::strided(512, 384).query_stride(), 384);
  EXPECT_EQ(Pattern::dilated(64, 32).query_stride(), 32);
  EXPECT_EQ((Pattern::strided(1, 48) | ~Pattern::dilated(9, 80)).query_stride(), 16);
  EXPECT_EQ(Pattern::rect({.row_stride = 6, .column_stride = 4}).query_stride(), 6);
  EXPECT_EQ(Pattern::spread(Pattern::rect({.rows = 32, .columns = 8}), Pattern::strided(2, 6)).query_stride(), 192);
  EXPECT_EQ(Pattern::spread(Pattern::rect({.rows = 1 << 20, .columns = 8}), Pattern::strided(2, 1 << 20)).query_stride(), 0);
}

TEST(Pattern, HasAMostNumberOfParts) {
  Pattern pattern = Pattern::causal();
  EXPECT_THROW(
      {
        for (int i = 0; i < 20; ++i) pattern = pattern | pattern;
      },
      InputError);
}

}  // namespace
}  // namespace sluice::test
