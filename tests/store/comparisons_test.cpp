#include <gtest/gtest.h>

#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

SubmissionId judged(TestStore& test, const std::string& name, const Verdict& verdict, std::vector<SubmissionId> parents = {}) {
  const SubmissionId id = test.store.submit("ada", draft(name, std::move(parents))).id;
  test.clock.advance(1000000);
  test.store.complete(test.store.claim("w", 1000).value(), verdict);
  return id;
}

TEST(Leaderboard, RanksTheLastVerdictOfThoseThatPassed) {
  TestStore test;
  const SubmissionId low = judged(test, "low", passed(0.2));
  const SubmissionId high = judged(test, "high", passed(0.9));
  Verdict refused = passed(0.95);
  refused.status = Status::kBelowThreshold;
  const SubmissionId failed = judged(test, "failed", refused);
  const auto ids = [&](const Ranking& ranking) {
    std::vector<SubmissionId> order;
    for (const Ranked& row : test.store.leaderboard(ranking)) order.push_back(row.submission.id);
    return order;
  };
  using Ids = std::vector<SubmissionId>;
  EXPECT_EQ(ids({.metric = "accuracy"}), (Ids{high, low}));
  EXPECT_EQ(ids({.metric = "accuracy", .higher_is_better = false}), (Ids{low, high}));
  EXPECT_EQ(ids({.metric = "accuracy", .limit = 1}), Ids{high});
  EXPECT_EQ(ids({.metric = "accuracy", .filter = {.status = Status::kBelowThreshold}}), Ids{failed});
  EXPECT_EQ(ids({.metric = "accuracy", .filter = {.agent = "bob"}}), Ids{});
  EXPECT_EQ(ids({.metric = "accuracy", .task = "needle"}), Ids{});
  test.store.judge_again(low);
  test.store.complete(test.store.claim("w", 1000).value(), passed(0.99));
  EXPECT_EQ(ids({.metric = "accuracy"}), (Ids{low, high}));
  EXPECT_DOUBLE_EQ(*test.store.leaderboard({.metric = "accuracy"}).front().metric.low, 0.89);
}

TEST(ParetoFront, KeepsWhatNothingBeatsInBoth) {
  TestStore test;
  const SubmissionId exact = judged(test, "exact", passed(1.0, 1));
  const SubmissionId balanced = judged(test, "balanced", passed(0.8, 3));
  judged(test, "beaten", passed(0.7, 2));
  judged(test, "beaten in one", passed(0.8, 2.5));
  const SubmissionId twin = judged(test, "twin", passed(0.8, 3));
  const SubmissionId fast = judged(test, "fast", passed(0.1, 9));
  std::vector<SubmissionId> front;
  for (const FrontPoint& point : test.store.pareto_front("accuracy", "speedup")) front.push_back(point.submission.id);
  EXPECT_EQ(front, (std::vector<SubmissionId>{exact, balanced, twin, fast}));
}

TEST(History, TellsTheBestSoFar) {
  TestStore test;
  for (const double accuracy : {0.5, 0.3, 0.8}) judged(test, "flow " + std::to_string(accuracy), passed(accuracy));
  std::vector<double> best;
  for (const HistoryPoint& point : test.store.history({.metric = "accuracy"})) best.push_back(point.best);
  EXPECT_EQ(best, (std::vector<double>{0.5, 0.5, 0.8}));
}

TEST(Family, FollowsParentsBothWays) {
  TestStore test;
  const SubmissionId root = judged(test, "root", passed());
  const SubmissionId left = judged(test, "left", passed(), {root});
  const SubmissionId right = judged(test, "right", passed(), {root});
  const SubmissionId merged = judged(test, "merged", passed(), {right, left});
  const SubmissionId mother = judged(test, "mother", passed());
  const SubmissionId child = judged(test, "child", passed(), {merged, mother});
  judged(test, "stranger", passed());
  const auto ids = [](const std::vector<SubmissionSummary>& nodes) {
    std::vector<SubmissionId> list;
    for (const SubmissionSummary& node : nodes) list.push_back(node.id);
    return list;
  };
  using Ids = std::vector<SubmissionId>;
  EXPECT_EQ(ids(test.store.ancestors(merged)), (Ids{root, left, right}));
  EXPECT_EQ(ids(test.store.descendants(left)), (Ids{merged, child}));
  EXPECT_EQ(ids(test.store.family(mother)), (Ids{root, left, right, merged, mother, child}));
  EXPECT_EQ(test.store.family(mother).at(3).parents, (Ids{right, left}));
  EXPECT_TRUE(test.store.ancestors(root).empty());
}

}  // namespace
}  // namespace sluice::store::test
