#include "store/database/ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <random>

#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

constexpr Time kHour = 3600LL * 1000000;

TEST(Ranks, AreSharedWhereTheIntervalOfTheDifferenceHasZero) {
  const Comparable best{0.9, 0.87, 0.93};
  const Comparable near{0.85, 0.80, 0.89};  // 0.05 apart, as are the facing halves: hypot(0.03, 0.04)
  EXPECT_FALSE(is_better(best, near, true));
  EXPECT_TRUE(is_better({0.9001, 0.8701, 0.93}, near, true));
  EXPECT_FALSE(is_better(near, best, true));
  EXPECT_TRUE(is_better({0.1, 0.08, 0.13}, {0.2, 0.17, 0.5}, false)) << "only what faces the other counts";
  EXPECT_FALSE(is_better({0.1, 0.0, 0.2}, {0.2, 0.17, 0.5}, false));
}

TEST(Ranks, OfValuesWithoutIntervalsGoByTheValues) {
  EXPECT_TRUE(is_better({0.9}, {0.899}, true));
  EXPECT_FALSE(is_better({0.9}, {0.9}, true));
  EXPECT_TRUE(is_better({0.9, 0.1, 1.0}, {0.8}, true));
  EXPECT_TRUE(is_better({0.8}, {0.9, 0.1, 1.0}, false));
}

/// What a board is made of, as the test writes it.
struct Entry {
  double value = 0;
  std::optional<double> low = {};
  std::optional<double> high = {};
};

class RandomBoard : public ::testing::TestWithParam<unsigned> {
 protected:
  double draw() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  Entry entry() {
    Entry made{std::round(draw() * 20) / 20};  // so that some are equal
    if (draw() < 0.8) {
      made.low = made.value - draw() * 0.2;
      made.high = made.value + draw() * 0.2;
    }
    return made;
  }
  static Verdict verdict_of(const Entry& entry) {
    Verdict verdict;
    verdict.metrics = {{"score", "", 0, entry.value, entry.low, entry.high, ""}};
    return verdict;
  }
  void judge(const std::string& name) {
    const SubmissionId id = test_.store.submit("ada", draft(name)).id;
    standing_[id] = entry();
    test_.store.complete(test_.store.claim("w", kHour).value(), verdict_of(standing_[id]));
    const double fate = draw();
    if (fate > 0.5) return;
    test_.store.ask_confirmation("ada", id);
    const Entry confirmed = entry();
    Verdict verdict = verdict_of(confirmed);
    if (fate < 0.1) verdict.status = Status::kBelowThreshold;
    test_.store.complete(test_.store.claim("w", kHour).value(), verdict);
    standing_[id] = confirmed;
    if (fate < 0.1) standing_.erase(id);
  }
  /// As the documentation says it, of all entries.
  int64_t plain_rank(const Entry& of, bool higher) const {
    int64_t rank = 1;
    for (const auto& [id, other] : standing_) {
      const double ahead = higher ? other.value - of.value : of.value - other.value;
      double wide = 0;
      if (other.low && of.low) {
        const double left = higher ? other.value - *other.low : *other.high - other.value;
        const double right = higher ? *of.high - of.value : of.value - *of.low;
        wide = std::sqrt(left * left + right * right);
      }
      rank += ahead > wide ? 1 : 0;
    }
    return rank;
  }

  std::mt19937 random_{GetParam()};
  TestStore test_;
  std::map<SubmissionId, Entry> standing_;
};

TEST_P(RandomBoard, HasTheRanksOfBruteForceOnEveryPage) {
  for (int i = 0; i < 60; ++i) judge(fmt::format("flow {}", i));
  for (const bool higher : {true, false}) {
    const Ranking whole{.metric = "score", .higher_is_better = higher, .limit = 1000};
    const std::vector<Ranked> board = test_.store.leaderboard(whole);
    ASSERT_EQ(board.size(), standing_.size());
    EXPECT_EQ(test_.store.count_ranked(whole), static_cast<int64_t>(standing_.size()));
    for (size_t i = 0; i < board.size(); ++i) {
      const Entry& entry = standing_.at(board[i].submission.id);
      EXPECT_EQ(board[i].metric.value, entry.value);
      EXPECT_EQ(board[i].rank, plain_rank(entry, higher)) << i;
      if (i == 0) continue;
      const double before = board[i - 1].metric.value;
      EXPECT_TRUE(higher ? entry.value <= before : entry.value >= before) << i;
    }
    std::vector<SubmissionId> paged;
    for (int64_t skip = 0; skip < static_cast<int64_t>(board.size()); skip += 7) {
      Ranking page = whole;
      page.limit = 7;
      page.skip = skip;
      for (const Ranked& row : test_.store.leaderboard(page)) {
        EXPECT_EQ(row.rank, board.at(paged.size()).rank);
        paged.push_back(row.submission.id);
      }
    }
    ASSERT_EQ(paged.size(), board.size());
    for (size_t i = 0; i < paged.size(); ++i) EXPECT_EQ(paged[i], board[i].submission.id);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomBoard, ::testing::Range(1U, 6U));

}  // namespace
}  // namespace sluice::store::test
