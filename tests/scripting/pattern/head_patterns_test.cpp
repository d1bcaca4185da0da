#include "scripting/pattern/head_patterns.h"

#include <gtest/gtest.h>

#include <random>

#include "scripting/base/error.h"
#include "tests/scripting/pattern/boolean_matrix.h"

namespace sluice {
namespace {

Pattern either(const Pattern& a, const Pattern& b) { return a | b; }

TEST(HeadPatterns, HeadsBeyondThoseToldBeginAnew) {
  const HeadPatterns patterns = HeadPatterns::of({Pattern::window(1), Pattern::window(2), Pattern::window(3)});
  EXPECT_EQ(patterns.size(), 3);
  for (int head = 0; head < 20; ++head) EXPECT_EQ(patterns.of_head(head), Pattern::window(1 + head % 3)) << head;
}

TEST(HeadPatterns, RepetitionsAreDropped) {
  const Pattern a = Pattern::window(4);
  const Pattern b = Pattern::sink(2);
  EXPECT_EQ(HeadPatterns::of({a, a, a}), HeadPatterns(a));
  EXPECT_EQ(HeadPatterns::of({a, b, a, b}), HeadPatterns::of({a, b}));
  EXPECT_EQ(HeadPatterns::of({a, b, a}).size(), 3);
  EXPECT_EQ(HeadPatterns::of(std::vector<Pattern>(64, a)).size(), 1);
}

TEST(HeadPatterns, AreJoinedHeadByHead) {
  std::mt19937 random(3);
  const auto draw = [&] {
    std::vector<Pattern> heads;
    const auto size = 1 + random() % 4;
    for (size_t head = 0; head < size; ++head) heads.push_back(test::random_pattern(random, 3));
    return HeadPatterns::of(std::move(heads));
  };
  for (int run = 0; run < 200; ++run) {
    const HeadPatterns a = draw();
    const HeadPatterns b = draw();
    const HeadPatterns both = joined(a, b, either);
    for (int head = 0; head < 12; ++head) {
      for (int i = 0; i < 40; i += 3) {
        for (int j = 0; j <= i; ++j) {
          ASSERT_EQ(both.of_head(head).sees(i, j), a.of_head(head).sees(i, j) || b.of_head(head).sees(i, j));
        }
      }
    }
  }
}

TEST(HeadPatterns, AnyIsWhatOneOfTheFirstHeadsSees) {
  const HeadPatterns patterns =
      HeadPatterns::of({Pattern::window(2), Pattern::sink(3), Pattern::window(2), Pattern::dilated(3, 5)});
  for (int heads = 1; heads < 9; ++heads) {
    for (int i = 0; i < 30; ++i) {
      for (int j = 0; j <= i; ++j) {
        bool seen = false;
        for (int head = 0; head < heads; ++head) seen = seen || patterns.of_head(head).sees(i, j);
        ASSERT_EQ(patterns.any(heads).sees(i, j), seen) << heads << " heads";
      }
    }
  }
}

TEST(HeadPatterns, AreRefusedWhereThereAreNoneOrTooMany) {
  std::vector<Pattern> heads;
  EXPECT_THROW(HeadPatterns::of({}), InputError);
  for (int head = 0; head < HeadPatterns::kMost; ++head) heads.push_back(Pattern::window(1 + head));
  const HeadPatterns most = HeadPatterns::of(heads);
  heads.push_back(Pattern::sink(1));
  EXPECT_THROW(HeadPatterns::of(heads), InputError);
  EXPECT_THROW(joined(most, HeadPatterns::of({Pattern::sink(1), Pattern::sink(2), Pattern::sink(3)}), either), InputError);
}

}  // namespace
}  // namespace sluice
