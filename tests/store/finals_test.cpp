// Submissions that passed, judged once more by another model.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "store/folder/data_folder.h"
#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

constexpr Time kHour = 3600LL * 1000000;
const std::string kFirst = R"({"device":"cpu","model":"mini","model_digest":"a","suite":"quick"})";
const std::string kLast = R"({"device":"cpu","model":"large","model_digest":"b","suite":"real"})";
const Equipment kMini{"mini", "a", "cpu"};
const Equipment kLarge{"large", "b", "cpu"};
const FinalRun kRun{kMini, kLast, "score", "quick"};

Verdict scored(double score, double margin = 0.01, Status status = Status::kPassed) {
  Verdict verdict;
  verdict.status = status;
  verdict.metrics = {{"score", "", 0, score, score - margin, score + margin, ""}, {"speedup", "", 0, 2, 1.9, 2.1, "x dense"}};
  return verdict;
}

/// A store whose submissions are judged on a small model first, and on a large one at last.
struct TwoModels : TestStore {
  SubmissionId submit(const std::string& name, const std::string& settings = kFirst, std::vector<SubmissionId> parents = {}) {
    Draft made = draft(name, std::move(parents));
    made.settings = settings;
    return store.submit("ada", made).id;
  }
  SubmissionId judged(const std::string& name, const Verdict& verdict, std::vector<SubmissionId> parents = {}) {
    const SubmissionId id = submit(name, kFirst, std::move(parents));
    decide(verdict, kMini);
    return id;
  }
  void decide(const Verdict& verdict, const Equipment& equipment) {
    store.complete(store.claim("w", kHour, equipment).value(), verdict);
  }
  /// A flow with a verdict of both.
  SubmissionId twice(const std::string& name, const Verdict& first, const Verdict& last) {
    const SubmissionId id = judged(name, first);
    EXPECT_EQ(store.ask_finals(kRun).size(), 1U);
    decide(last, kLarge);
    return id;
  }
  std::vector<std::pair<SubmissionId, int64_t>> board(const Filter& filter = {}) {
    std::vector<std::pair<SubmissionId, int64_t>> ranks;
    for (const Ranked& row : store.leaderboard({.metric = "score", .filter = filter, .by_finals = true})) {
      ranks.emplace_back(row.submission.id, row.rank);
    }
    return ranks;
  }
  std::vector<SubmissionId> listed(const Filter& filter) {
    std::vector<SubmissionId> ids;
    for (const SubmissionSummary& each : store.list(filter).submissions) ids.push_back(each.id);
    return ids;
  }
};

using Board = std::vector<std::pair<SubmissionId, int64_t>>;

TEST(Finals, AreTheSameFlowForAnotherModel) {
  TwoModels test;
  const SubmissionId parent = test.judged("parent", scored(0.1, 0.01, Status::kBelowThreshold));
  const SubmissionId first = test.judged("flow", scored(0.5), {parent});
  const Quota quota = test.store.quota_of("ada");
  const std::vector<SubmissionId> finals = test.store.ask_finals(kRun);
  ASSERT_EQ(finals.size(), 1U);
  const Submission one = test.store.get(first).value();
  const Submission last = test.store.get(finals.front()).value();
  EXPECT_EQ(last.script, one.script);
  EXPECT_EQ(last.agent, one.agent);
  EXPECT_EQ(last.name, one.name);
  EXPECT_EQ(last.parents, one.parents);
  EXPECT_EQ(last.settings, kLast);
  EXPECT_EQ(last.status, Status::kQueued);
  EXPECT_EQ(test.store.quota_of("ada").used, quota.used) << "it costs nobody anything";
  EXPECT_TRUE(test.store.ask_finals(kRun).empty()) << "there is one already";

  const SubmissionSummary summary = test.store.summary(first).value();
  ASSERT_TRUE(summary.final);
  EXPECT_EQ(summary.final->submission, last.id);
  EXPECT_EQ(summary.final->status, Status::kQueued);
  EXPECT_TRUE(summary.final->metrics.empty());
  EXPECT_FALSE(summary.final_of);
  EXPECT_EQ(test.store.summary(last.id)->final_of, first);

  test.decide(scored(0.75), kLarge);
  const Final judged = test.store.summary(first)->final.value();
  EXPECT_TRUE(judged.passed());
  EXPECT_EQ(judged.metrics.front().value, 0.75);
  EXPECT_EQ(test.store.summary(first)->metrics.front().value, 0.5) << "what the first model said stays";
  expect_whole(test);
}

TEST(Finals, AreNoSecondRowOfTheirFlow) {
  TwoModels test;
  const SubmissionId parent = test.judged("parent", scored(0.1, 0.01, Status::kBelowThreshold));
  const SubmissionId first = test.judged("flow", scored(0.5), {parent});
  const SubmissionId last = test.store.ask_finals(kRun).at(0);
  test.decide(scored(0.75), kLarge);
  EXPECT_EQ(test.listed({}), (std::vector<SubmissionId>{first, parent}));
  EXPECT_EQ(test.store.list({}).total, 2);
  EXPECT_EQ(test.listed({.model = "large"}), std::vector<SubmissionId>{last});
  EXPECT_EQ(test.listed({.with_finals = true}), (std::vector<SubmissionId>{last, first, parent}));
  EXPECT_EQ(test.board(), (Board{{first, 1}}));
  EXPECT_EQ(test.store.pareto_front("score", "speedup").size(), 1U);
  EXPECT_EQ(test.store.history({.metric = "score"}).size(), 1U);
  EXPECT_EQ(test.store.agents().at(0).submissions, 2);
  EXPECT_EQ(test.store.agents().at(0).passed, 1);
  EXPECT_EQ(test.store.agents().at(0).best_score, 0.5);
  EXPECT_EQ(test.store.descendants(parent).nodes.size(), 1U);
  EXPECT_EQ(test.store.family(last).nodes.size(), 3U) << "it is there for who asks for it";
  const SubmissionId child = test.submit("child", kFirst, {last});
  EXPECT_EQ(test.store.ancestors(child).nodes.size(), 2U) << "and where others come from it";
}

TEST(Finals, AreOfWhatPassedOnTheFirstModelAlone) {
  TwoModels test;
  test.judged("fell", scored(0.1, 0.01, Status::kBelowThreshold));
  test.submit("of another model", R"({"device":"cpu","model":"medium","model_digest":"c","suite":"quick"})");
  test.store.complete(test.store.claim("w", kHour).value(), scored(0.9));
  const SubmissionId first = test.submit("flow");
  const Lease lease = test.store.claim("w", kHour, kMini).value();
  EXPECT_EQ(test.store.share_verdict(lease, "fingerprint", {}), Sharing::kNone);
  test.store.complete(lease, scored(0.5));
  const SubmissionId copy = test.submit("copy");
  EXPECT_EQ(test.store.share_verdict(test.store.claim("w", kHour, kMini).value(), "fingerprint", {}), Sharing::kShared);
  test.submit("waits");
  const std::vector<SubmissionId> finals = test.store.ask_finals(kRun);
  ASSERT_EQ(finals.size(), 1U);
  EXPECT_EQ(test.store.summary(first)->final->submission, finals.front());
  EXPECT_EQ(test.store.summary(copy)->final->submission, finals.front()) << "it shares that verdict, too";
  EXPECT_EQ(test.store.summary(finals.front())->final_of, first);
  expect_whole(test);
}

TEST(Finals, WaitBehindAllElseTheBestFirstAndFewAtATime) {
  TwoModels test;
  constexpr int kFlows = 40;
  for (int i = 0; i < kFlows; ++i) test.judged(fmt::format("flow {}", i), scored(0.01 * i));
  const std::vector<SubmissionId> finals = test.store.ask_finals(kRun);
  ASSERT_LT(finals.size(), static_cast<size_t>(kFlows));
  EXPECT_EQ(test.store.summary(finals.front())->final_of, kFlows) << "the one that was best";
  EXPECT_TRUE(test.store.ask_finals(kRun).empty()) << "there is no room";
  const SubmissionId later = test.submit("later");
  EXPECT_EQ(test.store.claim("w", kHour)->submission, later);
  test.decide(scored(0.5), kLarge);
  EXPECT_EQ(test.store.ask_finals(kRun).size(), 1U);
  expect_whole(test);
}

TEST(Finals, MayHaveBeenHandedInBefore) {
  TwoModels test;
  Draft made = draft("flow");
  made.settings = kLast;
  const SubmissionId last = test.store.submit("ada", made).id;
  test.decide(scored(0.75), kLarge);
  const SubmissionId first = test.judged("flow", scored(0.5));
  EXPECT_EQ(test.store.ask_finals(kRun), std::vector<SubmissionId>{last});
  EXPECT_TRUE(test.store.summary(first)->final->passed());
  EXPECT_EQ(test.listed({}), (std::vector<SubmissionId>{first, last})) << "who handed it in sees it";
  // And the other way round: what the server has made is there for whoever hands it in later.
  const SubmissionId other = test.judged("other", scored(0.5));
  const SubmissionId other_last = test.store.ask_finals(kRun).at(0);
  Draft again = draft("other");
  again.settings = kLast;
  again.script = test.store.get(other)->script;
  EXPECT_EQ(test.store.submit("ada", again).id, other_last);
  expect_whole(test);
}

TEST(Finals, OfScriptsThatAreOneFlowHaveOneVerdict) {
  TwoModels test;
  const SubmissionId quick = test.judged("flow", scored(0.5));
  const SubmissionId standard =
      test.submit("flow once more", R"({"device":"cpu","model":"mini","model_digest":"a","suite":"standard"})");
  test.decide(scored(0.5), kMini);
  EXPECT_EQ(test.store.ask_finals(kRun).size(), 2U);
  const Lease lease = test.store.claim("w", kHour, kLarge).value();
  EXPECT_EQ(test.store.share_verdict(lease, "one flow", {}), Sharing::kNone);
  test.store.complete(lease, scored(0.75));
  EXPECT_EQ(test.store.share_verdict(test.store.claim("w", kHour, kLarge).value(), "one flow", {}), Sharing::kShared);
  for (const SubmissionId id : {quick, standard}) EXPECT_TRUE(test.store.summary(id)->final->passed()) << id;
  EXPECT_EQ(test.board(), (Board{{quick, 1}, {standard, 1}}));
  expect_whole(test);
}

TEST(Finals, AreOfTheModelThatWasAskedForLast) {
  TwoModels test;
  const SubmissionId first = test.judged("flow", scored(0.5));
  const SubmissionId before = test.store.ask_finals(kRun).at(0);
  const FinalRun other{kMini, R"({"device":"cpu","model":"larger","model_digest":"c","suite":"real"})", "score"};
  const SubmissionId after = test.store.ask_finals(other).at(0);
  EXPECT_NE(after, before);
  EXPECT_EQ(test.store.summary(first)->final->submission, after);
  EXPECT_FALSE(test.store.summary(before)->final_of);
  EXPECT_EQ(test.store.ask_finals(kRun), std::vector<SubmissionId>{before}) << "that is there still";
  expect_whole(test);
}

TEST(Finals, AreMadeOnceHoweverManyAsk) {
  TwoModels test;
  for (int i = 0; i < 20; ++i) test.judged(fmt::format("flow {}", i), scored(0.5));
  const std::string path = test.folder.file("sluice.db");
  const std::vector<int> made = in_processes(4, [&](int) { return static_cast<int>(Store(path).ask_finals(kRun).size()); });
  EXPECT_EQ(std::count(made.begin(), made.end(), 20), 1);
  EXPECT_EQ(std::count(made.begin(), made.end(), 0), 3);
  expect_whole(test);
}

TEST(FinalsBoard, GoesByTheFinalWhereThereIsOne) {
  TwoModels test;
  const SubmissionId best_on_mini = test.twice("best on mini", scored(0.9), scored(0.4));
  const SubmissionId best = test.twice("best", scored(0.5), scored(0.8));
  const SubmissionId close = test.twice("close", scored(0.3), scored(0.79, 0.05));
  const SubmissionId fell = test.twice("fell", scored(0.95), scored(0.1, 0.01, Status::kBelowThreshold));
  const SubmissionId open = test.judged("open", scored(0.7));
  const SubmissionId waits = test.judged("waits", scored(0.6));
  test.store.ask_finals(kRun);
  EXPECT_EQ(test.board(), (Board{{best, 1}, {close, 1}, {best_on_mini, 3}, {open, 4}, {waits, 5}, {fell, 6}}));
  const std::vector<Ranked> rows = test.store.leaderboard({.metric = "score", .limit = 2, .skip = 2, .by_finals = true});
  EXPECT_EQ(rows.at(0).metric.value, 0.4);
  EXPECT_TRUE(rows.at(0).by_final);
  EXPECT_EQ(rows.at(1).metric.value, 0.7);
  EXPECT_FALSE(rows.at(1).by_final);
  std::vector<SubmissionId> by_first;
  for (const Ranked& row : test.store.leaderboard({.metric = "score"})) by_first.push_back(row.submission.id);
  EXPECT_EQ(by_first, (std::vector<SubmissionId>{fell, best_on_mini, open, waits, best, close})) << "as it is without finals";
}

TEST(FinalsBoard, AVerdictThatIsTakenBackMovesItsFlow) {
  TwoModels test;
  const SubmissionId one = test.twice("one", scored(0.9), scored(0.8));
  const SubmissionId two = test.twice("two", scored(0.5), scored(0.7));
  const SubmissionId last = test.store.summary(one)->final->submission;
  test.store.judge_again(last);
  EXPECT_EQ(test.board(), (Board{{two, 1}, {one, 2}})) << "it is open again";
  EXPECT_TRUE(test.store.cancel(last));
  const SubmissionId three = test.judged("three", scored(0.1));
  EXPECT_EQ(test.board(), (Board{{two, 1}, {one, 2}, {three, 3}})) << "a final that was cancelled says nothing";
  test.store.judge_again(two);
  test.decide(scored(0.1, 0.01, Status::kBelowThreshold), kMini);
  EXPECT_EQ(test.board(), (Board{{one, 1}, {three, 2}})) << "the first model takes it back";
  expect_whole(test);
}

TEST(FinalsBoard, WhatSaysMoreOfTheMachineThanOfTheFlowIsNoVerdict) {
  TwoModels test;
  const SubmissionId better = test.twice("better", scored(0.9), scored(0.3, 0.01, Status::kTimeout));
  const SubmissionId fell = test.twice("fell", scored(0.8), scored(0.2, 0.01, Status::kBelowThreshold));
  const SubmissionId good = test.twice("good", scored(0.1), scored(0.5));
  EXPECT_EQ(test.board(), (Board{{good, 1}, {better, 2}, {fell, 3}}));
  EXPECT_EQ(test.store.compare_finals("score").flows, 2);
  EXPECT_EQ(test.store.count_ranked({.metric = "score", .by_finals = true}), 3);
}

TEST(Finals, AreOfWhatWasAskedSomethingAndWasNotRefuted) {
  TwoModels test;
  const Verdict without;  // of a suite that asks nothing
  const SubmissionId other = test.submit("verified", R"({"device":"cpu","model":"mini","model_digest":"a","suite":"verify"})");
  test.decide(without, kMini);
  EXPECT_TRUE(test.store.ask_finals(kRun).empty()) << "it was not sorted out by " << other;
  FinalRun by_verifying = kRun;
  by_verifying.suite = "verify";
  EXPECT_EQ(test.store.ask_finals(by_verifying).size(), 1U) << "who has the server ask nothing wants all of them";
  const SubmissionId refuted = test.judged("refuted", scored(0.5));
  test.store.ask_confirmation("ada", refuted);
  test.decide(scored(0.1, 0.01, Status::kBelowThreshold), kMini);
  EXPECT_TRUE(test.store.ask_finals(kRun).empty());
}

TEST(Finals, NobodyCancelsThemForSomebodyElse) {
  TwoModels test;
  test.store.create_agent("mallory", Role::kAgent, 100);
  const SubmissionId own = test.submit("flow");
  Draft same = draft("flow");
  same.settings = R"({"device":"cpu","model":"mini","model_digest":"a","suite":"standard"})";
  const SubmissionId other = test.store.submit("mallory", same).id;
  ASSERT_NE(own, other);
  test.decide(scored(0.5), kMini);  // who has run less goes first: complete both, whichever it is
  test.decide(scored(0.5), kMini);
  test.store.ask_finals(kRun);
  const SubmissionId last = test.store.summary(own)->final->submission;
  EXPECT_EQ(test.store.summary(other)->final->submission, last) << "one script, one final";
  const std::string owner = test.store.get(last)->agent;
  const std::string robbed = owner == "ada" ? "mallory" : "ada";
  test.store.cancel(last);
  test.store.ask_finals(kRun);
  EXPECT_EQ(test.store.get(last)->agent, robbed) << "the other agent's flow is judged all the same";
  EXPECT_EQ(test.store.get(last)->status, Status::kQueued);
  test.store.cancel(last);
  test.store.ask_finals(kRun);
  EXPECT_EQ(test.store.get(last)->agent, owner);
  expect_whole(test);
}

TEST(Finals, AreSubmissionsOnceSomebodyHandsThemIn) {
  TwoModels test;
  const SubmissionId first = test.twice("flow", scored(0.5), scored(0.7));
  const SubmissionId last = test.store.summary(first)->final->submission;
  EXPECT_EQ(test.listed({}), (std::vector<SubmissionId>{first}));
  Draft same = draft("flow");
  same.settings = kLast;  // a server whose first model that is
  const Submitted again = test.store.submit("ada", same);
  EXPECT_EQ(again.id, last);
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(test.listed({}), (std::vector<SubmissionId>{last, first}));
  expect_whole(test);
}

TEST(FinalsBoard, TakesWhatWasConfirmed) {
  TwoModels test;
  const SubmissionId one = test.twice("one", scored(0.9), scored(0.8));
  const SubmissionId two = test.twice("two", scored(0.5), scored(0.7));
  const int64_t used = test.store.quota_of("ada").used;
  test.store.ask_confirmation("ada", test.store.summary(one)->final->submission);
  EXPECT_EQ(test.store.quota_of("ada").used, used + 1) << "by itself it costs what any does";
  test.decide(scored(0.6), kLarge);
  EXPECT_EQ(test.board(), (Board{{two, 1}, {one, 2}}));
  EXPECT_EQ(test.store.summary(one)->final->metrics.front().value, 0.6);
  EXPECT_EQ(test.store.summary(one)->final->confirmed, Status::kPassed);
  EXPECT_TRUE(test.store.leaderboard({.metric = "score", .by_finals = true}).at(1).is_confirmed);
  test.store.ask_confirmation("ada", test.store.summary(two)->final->submission);
  test.decide(scored(0.9, 0.01, Status::kBelowThreshold), kLarge);
  EXPECT_FALSE(test.store.summary(two)->final->passed());
  EXPECT_EQ(test.board(), (Board{{one, 1}, {two, 2}}));
}

TEST(Finals, AreConfirmedOnceForNothingWithTheirFlow) {
  TwoModels test;
  const SubmissionId one = test.twice("one", scored(0.9), scored(0.8));
  const SubmissionId last = test.store.summary(one)->final->submission;
  const int64_t used = test.store.quota_of("ada").used;
  test.store.ask_confirmation("ada", one);
  test.store.ask_confirmation("ada", last);
  EXPECT_EQ(test.store.quota_of("ada").used, used + 1);
  test.decide(scored(0.1, 0.01, Status::kRuntimeError), kLarge);
  test.store.ask_confirmation("ada", last);
  EXPECT_EQ(test.store.quota_of("ada").used, used + 2) << "each time that it failed counts";
  test.store.set_quota("ada", 1);
  test.decide(scored(0.1, 0.01, Status::kRuntimeError), kLarge);
  EXPECT_THROW(test.store.ask_confirmation("ada", last), StoreError);
}

TEST(FinalsComparison, NamesWhatTheModelsSeeInOppositeOrder) {
  TwoModels test;
  const SubmissionId one = test.twice("one", scored(0.9), scored(0.4));
  const SubmissionId two = test.twice("two", scored(0.5), scored(0.8));
  test.twice("near two", scored(0.49, 0.2), scored(0.85, 0.2));
  EXPECT_FALSE(test.store.compare_finals("score").agreement) << "three flows are too few";
  const SubmissionId fell = test.twice("fell", scored(0.3), scored(0.1, 0.01, Status::kBelowThreshold));
  const SubmissionId four = test.twice("four", scored(0.2), scored(0.2));
  test.judged("open", scored(0.7));
  const FinalsComparison comparison = test.store.compare_finals("score");
  EXPECT_EQ(comparison.flows, 5);
  EXPECT_EQ(comparison.passed_both, 4);
  ASSERT_EQ(comparison.reversed_total, 2);
  ASSERT_EQ(comparison.reversed.size(), 2U);
  EXPECT_EQ(comparison.reversed.at(1).first.submission, two);
  EXPECT_EQ(comparison.reversed.at(1).second.submission, one);
  EXPECT_EQ(comparison.reversed.at(1).first.last.metric->value, 0.8);
  EXPECT_EQ(comparison.reversed.at(1).first.first.metric->value, 0.5);
  ASSERT_EQ(comparison.divided.size(), 1U);
  EXPECT_EQ(comparison.divided.front().submission, fell);
  EXPECT_EQ(comparison.divided.front().last.status, Status::kBelowThreshold);
  // Of six pairs three are in one order and three in the other.
  EXPECT_DOUBLE_EQ(comparison.agreement.value(), 0);
  EXPECT_EQ(test.store.compare_finals("score", {}, 1).reversed.size(), 1U);
  EXPECT_EQ(test.store.compare_finals("score", {.agent = "bob"}).flows, 0);
  EXPECT_GT(four, 0);
}

TEST(FinalsComparison, SaysWhatPassedOnTheFinalAlone) {
  TwoModels test;
  const SubmissionId one = test.twice("one", scored(0.9), scored(0.4));
  test.store.ask_confirmation("ada", one);
  test.decide(scored(0.8), kMini);
  EXPECT_EQ(test.store.compare_finals("score").flows, 1);
  test.store.judge_again(one);
  EXPECT_EQ(test.store.compare_finals("score").flows, 0) << "there is no verdict at the moment";
  test.decide(scored(0.1, 0.01, Status::kBelowThreshold), kMini);
  const FinalsComparison comparison = test.store.compare_finals("score");
  ASSERT_EQ(comparison.divided.size(), 1U);
  EXPECT_EQ(comparison.divided.front().first.status, Status::kBelowThreshold);
  EXPECT_EQ(comparison.divided.front().last.status, Status::kPassed);
}

TEST(FinalsFolder, HasCommitsOfFinals) {
  const Folder folder;
  DataFolder data(folder.path());
  Store store = data.open_store();
  store.create_agent("ada", Role::kAgent, 100);
  Draft made = draft("flow");
  made.settings = kFirst;
  store.submit("ada", made);
  while (const auto lease = store.claim("w", kHour)) {
    store.complete(*lease, scored(0.5));
    store.ask_finals(kRun);
  }
  EXPECT_EQ(data.sync_lineage(), "");
  const FsckReport report = data.fsck();
  EXPECT_EQ(report.problems, std::vector<std::string>());
  EXPECT_EQ(report.commits, 2);
}

}  // namespace
}  // namespace sluice::store::test
