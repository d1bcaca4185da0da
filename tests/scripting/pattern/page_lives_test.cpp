#include "scripting/pattern/page_lives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <random>

#include "scripting/pattern/text.h"
#include "tests/scripting/pattern/boolean_matrix.h"

namespace sluice::test {
namespace {

TEST(PageLives, APageIsNeededUntilNoQueryReadsAnyOfItsTokens) {
  std::mt19937 random(12);
  for (int i = 0; i < 100; ++i) {
    const Pattern pattern = random_pattern(random, 6);
    const auto length = static_cast<int>(1 + random() % 300);
    const int page = 8 << (random() % 3);
    SCOPED_TRACE(to_text(pattern) + ", " + std::to_string(length) + " tokens, pages of " + std::to_string(page));
    const PageLives lives(PatternAnalysis(pattern), length, page);
    const BooleanMatrix seen = BooleanMatrix::of(pattern, length);
    const int pages = (length + page - 1) / page;
    // From the last query back: who reads a page later.
    std::vector<std::vector<bool>> needed(static_cast<size_t>(length) + 1, std::vector<bool>(static_cast<size_t>(pages), false));
    for (int query = length - 1; query >= 0; --query) {
      std::vector<bool>& now = needed[static_cast<size_t>(query)];
      now = needed[static_cast<size_t>(query) + 1];
      for (int key = 0; key <= query; ++key)
        now[static_cast<size_t>(key / page)] = now[static_cast<size_t>(key / page)] || seen.at(query, key);
    }
    int most = 0;
    for (int query = 0; query < length; ++query) {
      int held = 0;
      for (int each = 0; each <= query / page; ++each) {
        const bool is_needed = needed[static_cast<size_t>(query)][static_cast<size_t>(each)] || query < (each + 1) * page;
        ASSERT_EQ(lives.is_needed(each, query), is_needed) << "page " << each << ", query " << query;
        held += is_needed ? 1 : 0;
      }
      most = std::max(most, held);
      ASSERT_EQ(lives.most(query + 1), most) << "query " << query;
      const auto ended = lives.ending(query, query + 1);
      for (int each = 0; each < pages; ++each) {
        const bool ends = std::find(ended.begin(), ended.end(), each) != ended.end();
        ASSERT_EQ(ends, lives.last_reader(each) == query);
      }
    }
  }
}

TEST(PageLives, OfAWindowAreThoseOfItsTokens) {
  const PageLives lives(PatternAnalysis(Pattern::sink(4) | Pattern::window(64)), 10000, 16);
  EXPECT_EQ(lives.most(10000), 1 + 5) << "the first page, and 64 tokens that begin anywhere in one";
  EXPECT_EQ(lives.most(1), 1);
  EXPECT_EQ(lives.most(0), 0);
  EXPECT_EQ(lives.most(INT_MAX), 6);
  EXPECT_EQ(lives.tokens(), 10000);
}

}  // namespace
}  // namespace sluice::test
