#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

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
  const auto ids = [](const Relatives& relatives) {
    std::vector<SubmissionId> list;
    for (const SubmissionSummary& node : relatives.nodes) list.push_back(node.id);
    return list;
  };
  using Ids = std::vector<SubmissionId>;
  EXPECT_EQ(ids(test.store.ancestors(merged)), (Ids{root, left, right}));
  EXPECT_EQ(ids(test.store.descendants(left)), (Ids{merged, child}));
  EXPECT_EQ(ids(test.store.family(mother)), (Ids{root, left, right, merged, mother, child}));
  EXPECT_EQ(test.store.family(mother).nodes.at(3).parents, (Ids{right, left}));
  EXPECT_TRUE(test.store.ancestors(root).nodes.empty());
  EXPECT_EQ(test.store.ancestors(root).total, 0);
}

TEST(Family, LargeOnesAreToldWholePageByPage) {
  TestStore test;
  constexpr int kMembers = 2500;
  SubmissionId last = 0;
  for (int i = 0; i < kMembers; ++i) {
    last = test.store.submit("ada", draft(fmt::format("flow {}", i), last == 0 ? std::vector<SubmissionId>{} : std::vector{last}))
               .id;
  }
  const Relatives first = test.store.family(last);
  EXPECT_EQ(first.total, kMembers);
  EXPECT_EQ(first.nodes.size(), static_cast<size_t>(Limits::kRelatives));
  EXPECT_EQ(first.nodes.back().id, last) << "the nearest come first";
  const Relatives rest = test.store.family(last, first.next);
  EXPECT_EQ(rest.total, kMembers);
  EXPECT_EQ(rest.next, 0);
  std::set<SubmissionId> all;
  for (const Relatives* page : {&first, &rest}) {
    for (const SubmissionSummary& node : page->nodes) all.insert(node.id);
  }
  EXPECT_EQ(all.size(), static_cast<size_t>(kMembers));
  EXPECT_EQ(test.store.ancestors(last).total, kMembers - 1);
  EXPECT_EQ(test.store.descendants(1, 0, 10).nodes.size(), 10U);
  EXPECT_TRUE(test.store.family(last, 1'000'000).nodes.empty());
}

TEST(Leaderboard, TellsHowManyThereAre) {
  TestStore test;
  for (int i = 0; i < 5; ++i) judged(test, fmt::format("flow {}", i), passed(0.1 * (i + 1)));
  const Ranking ranking{.metric = "accuracy", .limit = 2, .skip = 1};
  EXPECT_EQ(test.store.count_measured(ranking), 5);
  EXPECT_EQ(test.store.leaderboard(ranking).front().submission.id, 4);
  EXPECT_EQ(test.store.history(ranking).back().submission, 4);
  EXPECT_EQ(test.store.history(ranking).size(), 2U);
}

}  // namespace
}  // namespace sluice::store::test
