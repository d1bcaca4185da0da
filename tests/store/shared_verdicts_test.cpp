// Scripts that turn out to be the same flow have one verdict.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tests/store/study.h"

namespace sluice::store::test {
namespace {

constexpr Time kHour = 3600LL * 1000000;
constexpr Time kMinute = 60LL * 1000000;

std::vector<Artifact> graph(const std::string& bytes) { return {{"graph.json", "application/json", bytes, 0}}; }

Verdict ended(Status status) {
  Verdict verdict = passed();
  verdict.status = status;
  verdict.message = "as it is";
  return verdict;
}

struct Shared : TestStore {
  SubmissionId submit(const std::string& name, const std::string& settings = R"({"model":"mini","suite":"quick"})",
                      const std::string& agent = "ada") {
    Draft made = draft(name);
    made.settings = settings;
    return store.submit(agent, made).id;
  }
  Lease claim() { return store.claim("w", kHour).value(); }
  Sharing share(const Lease& lease, const std::string& fingerprint = "f") {
    return store.share_verdict(lease, fingerprint, graph(fmt::format("{}", lease.submission)));
  }
  SubmissionId judged(const std::string& name, const Verdict& verdict = passed(), const std::string& fingerprint = "f") {
    const SubmissionId id = submit(name);
    const Lease lease = claim();
    EXPECT_EQ(lease.submission, id);
    EXPECT_EQ(share(lease, fingerprint), Sharing::kNone);
    store.complete(lease, verdict);
    return id;
  }
  SubmissionId shared(const std::string& name, const std::string& agent = "ada") {
    const SubmissionId id = submit(name, R"({"model":"mini","suite":"quick"})", agent);
    EXPECT_EQ(share(claim()), Sharing::kShared);
    return id;
  }
  std::optional<SubmissionId> same_as(SubmissionId id) { return store.summary(id)->same_as; }
  std::vector<SubmissionId> board() {
    std::vector<SubmissionId> ids;
    for (const Ranked& row : store.leaderboard({.metric = "accuracy"})) ids.push_back(row.submission.id);
    return ids;
  }
};

TEST(SharedVerdicts, ACopyHasTheVerdictAndNoRow) {
  Shared test;
  Verdict verdict = passed(0.75, 3);
  verdict.message = "well";
  verdict.stages = {{"verify", StageStatus::kPassed, 1.5, "", "{}"}};
  verdict.artifacts = {{"report.json", "application/json", "{}", 0}};
  const SubmissionId first = test.judged("one", verdict);
  test.clock.advance(5);
  const SubmissionId second = test.submit("two");
  const Lease lease = test.claim();
  EXPECT_EQ(test.share(lease), Sharing::kShared);
  EXPECT_EQ(kind_thrown_by([&] { test.store.check_lease(lease); }), ErrorKind::kConflict) << "there is nothing left to do";

  EXPECT_EQ(test.store.get(second)->status, Status::kPassed);
  EXPECT_EQ(test.same_as(second), first);
  EXPECT_FALSE(test.same_as(first));
  const Evaluation evaluation = test.store.last_evaluation(second).value();
  EXPECT_EQ(evaluation.outcome, "judged");
  EXPECT_EQ(evaluation.finished, *test.clock.time);
  EXPECT_EQ(evaluation.verdict.message, "well");
  ASSERT_EQ(evaluation.verdict.stages.size(), 1U);
  EXPECT_EQ(evaluation.verdict.stages[0].seconds, 1.5);
  ASSERT_EQ(test.store.metrics(second).size(), 2U);
  EXPECT_EQ(test.store.metrics(second)[0].value, 0.75);
  EXPECT_EQ(test.store.artifact(second, "report.json")->bytes, "{}");
  EXPECT_EQ(test.store.artifact(second, "graph.json")->bytes, fmt::format("{}", second)) << "its own";

  EXPECT_EQ(test.board(), std::vector<SubmissionId>{first});
  EXPECT_EQ(test.store.count_ranked({.metric = "accuracy"}), 1);
  EXPECT_EQ(test.store.count_measured({.metric = "accuracy"}), 1);
  EXPECT_EQ(test.store.history({.metric = "accuracy"}).size(), 1U);
  EXPECT_EQ(test.store.pareto_front("accuracy", "speedup").size(), 1U);
  EXPECT_EQ(test.store.list({}).submissions.size(), 2U) << "it was handed in, and is in lists";
  expect_whole(test);
}

TEST(SharedVerdicts, OfAnotherAgentTooWhoGetsNoScoreForIt) {
  Shared test;
  test.store.create_agent("bob", Role::kAgent, 10);
  Verdict verdict = passed();
  verdict.metrics.push_back({"score", "", 0, 0.5, 0.4, 0.6, ""});
  test.judged("one", verdict);
  test.shared("two", "bob");
  for (const AgentSummary& agent : test.store.agents()) {
    EXPECT_EQ(agent.passed, 1);
    EXPECT_EQ(agent.best_score.has_value(), agent.name == "ada") << agent.name;
  }
}

TEST(SharedVerdicts, OtherFlowsAndOtherSettingsAreJudged) {
  Shared test;
  const SubmissionId first = test.judged("one");
  test.judged("two", passed(), "g");
  for (const char* settings :
       {R"({"model":"mini","suite":"full"})", R"({"model":"other","suite":"quick"})",
        R"({"model":"mini","suite":"quick","device":"cuda"})", R"({"model":"mini","suite":"quick","more":1})"}) {
    test.submit("one", settings);
    const Lease lease = test.claim();
    EXPECT_EQ(test.share(lease), Sharing::kNone) << settings;
    test.store.complete(lease, passed());
  }
  const SubmissionId timed = test.submit("one", R"({"model":"mini","suite":"quick","seconds":60})");
  EXPECT_EQ(test.share(test.claim()), Sharing::kShared) << "how long it may take is no part of what is asked";
  EXPECT_EQ(test.same_as(timed), first);
  expect_whole(test);
}

TEST(SharedVerdicts, AgainstAFlowAreSharedToo) {
  for (const Status status : {Status::kBelowThreshold, Status::kIncorrectNumerical}) {
    Shared test;
    const SubmissionId first = test.judged("one", ended(status));
    const SubmissionId second = test.shared("two");
    EXPECT_EQ(test.store.get(second)->status, status);
    EXPECT_EQ(test.store.last_evaluation(second)->verdict.message, "as it is");
    EXPECT_EQ(test.same_as(second), first);
    expect_whole(test);
  }
}

TEST(SharedVerdicts, WhatSaysNothingOfTheFlowIsNotShared) {
  for (const Status status : {Status::kTimeout, Status::kRuntimeError, Status::kRejectedStatic}) {
    Shared test;
    test.judged("one", ended(status));
    const SubmissionId second = test.judged("two");
    EXPECT_FALSE(test.same_as(second)) << name_of(status);
    EXPECT_EQ(test.same_as(test.shared("three")), second);
    expect_whole(test);
  }
}

TEST(SharedVerdicts, WhoComesMeanwhileWaitsAndIsWoken) {
  Shared test;
  const SubmissionId first = test.submit("one");
  const Lease running = test.claim();
  EXPECT_EQ(test.share(running), Sharing::kNone);
  const SubmissionId second = test.submit("two");
  EXPECT_EQ(test.share(test.claim()), Sharing::kAwaited);
  EXPECT_EQ(test.store.get(second)->status, Status::kQueued);
  EXPECT_TRUE(test.store.evaluations(second).empty()) << "that was no try";
  EXPECT_FALSE(test.store.claim("w", kHour)) << "not before the other has ended, or a minute is over";
  expect_whole(test);
  test.store.complete(running, passed());
  const Lease woken = test.claim();
  EXPECT_EQ(woken.submission, second);
  EXPECT_EQ(test.share(woken), Sharing::kShared);
  EXPECT_EQ(test.same_as(second), first);
  expect_whole(test);
}

TEST(SharedVerdicts, WhoWaitsIsJudgedIfTheOtherComesToNothing) {
  Shared test;
  test.submit("one");
  const Lease running = test.claim();
  EXPECT_EQ(test.share(running), Sharing::kNone);
  const SubmissionId second = test.submit("two");
  EXPECT_EQ(test.share(test.claim()), Sharing::kAwaited);
  test.store.complete(running, ended(Status::kRuntimeError));
  const Lease woken = test.claim();
  EXPECT_EQ(woken.submission, second);
  EXPECT_EQ(test.share(woken), Sharing::kNone);
  test.store.complete(woken, passed());
  EXPECT_FALSE(test.same_as(second));
  expect_whole(test);
}

TEST(SharedVerdicts, NobodyWaitsForWhoWaits) {
  Shared test;
  const SubmissionId first = test.submit("one");
  const SubmissionId second = test.submit("two");
  const Lease one = test.claim();
  const Lease two = test.claim();
  EXPECT_EQ(test.share(one), Sharing::kNone);
  EXPECT_EQ(test.share(two), Sharing::kAwaited);
  test.store.release(one);  // the server ends
  test.clock.advance(2 * kMinute);
  for (int i = 0; i < 2; ++i) {
    const Lease lease = test.claim();
    const Sharing sharing = test.share(lease);
    ASSERT_NE(sharing, Sharing::kAwaited);
    if (sharing == Sharing::kNone) test.store.complete(lease, passed());
  }
  EXPECT_NE(test.same_as(first).has_value(), test.same_as(second).has_value());
  expect_whole(test);
}

TEST(SharedVerdicts, AnotherVerdictOfTheFirstIsTheirs) {
  Shared test;
  const SubmissionId first = test.judged("one", passed(0.5));
  const SubmissionId second = test.shared("two");
  EXPECT_EQ(kind_thrown_by([&] { test.store.judge_again(second); }), ErrorKind::kConflict) << "it has no verdict of its own";
  test.store.judge_again(first);
  expect_whole(test);
  EXPECT_EQ(test.store.metrics(second)[0].value, 0.5) << "until there is another";
  const Lease lease = test.claim();
  EXPECT_EQ(test.share(lease), Sharing::kNone);
  test.store.complete(lease, passed(0.25));
  const Lease again = test.claim();
  EXPECT_EQ(again.submission, second);
  EXPECT_EQ(test.share(again), Sharing::kShared);
  EXPECT_EQ(test.store.metrics(second)[0].value, 0.25);
  EXPECT_EQ(test.store.evaluations(second).size(), 2U);
  EXPECT_EQ(test.same_as(second), first);
  expect_whole(test);
}

TEST(SharedVerdicts, OfOneThatIsCancelledWhileItIsJudgedAgainAreJudgedAgain) {
  for (const bool while_running : {false, true}) {
    Shared test;
    const SubmissionId first = test.judged("one");
    const SubmissionId second = test.shared("two");
    const SubmissionId third = test.shared("three");
    test.store.judge_again(first);
    if (while_running) EXPECT_EQ(test.share(test.claim()), Sharing::kNone);
    test.store.cancel(first);
    expect_whole(test);
    const Lease lease = test.claim();
    EXPECT_EQ(lease.submission, second);
    EXPECT_EQ(test.share(lease), Sharing::kNone) << "the flow is judged for somebody";
    test.store.complete(lease, passed());
    EXPECT_EQ(test.share(test.claim()), Sharing::kShared);
    EXPECT_EQ(test.same_as(third), second);
    EXPECT_EQ(test.board(), std::vector<SubmissionId>{second});
    expect_whole(test);
  }
}

TEST(SharedVerdicts, AreSharedByWhatWasJudgedBeforeThereWereAny) {
  Shared test;
  const SubmissionId first = test.judged("one");
  const SubmissionId old = test.judged("two", passed(), "another fingerprint, of an earlier program");
  test.store.judge_again(old);
  EXPECT_EQ(test.share(test.claim()), Sharing::kShared);
  EXPECT_EQ(test.same_as(old), first);
  EXPECT_EQ(test.board(), std::vector<SubmissionId>{first});
  expect_whole(test);
}

TEST(SharedVerdicts, HaveOneConfirmation) {
  Shared test;
  test.store.create_agent("bob", Role::kAgent, 10);
  const SubmissionId first = test.judged("one", passed(0.75));
  const SubmissionId second = test.shared("two", "bob");
  EXPECT_FALSE(test.store.confirmation(second));
  const AskedConfirmation asked = test.store.ask_confirmation("bob", second);
  EXPECT_TRUE(asked.is_new);
  EXPECT_EQ(asked.confirmation.submission, second);
  EXPECT_FALSE(test.store.ask_confirmation("ada", first).is_new);
  const Lease lease = test.claim();
  EXPECT_EQ(lease.submission, first);
  ASSERT_TRUE(lease.confirmation);
  EXPECT_EQ(kind_thrown_by([&] { test.share(lease); }), ErrorKind::kInvalid) << "it is to be judged by its own seed";
  test.store.complete(lease, passed(0.5));
  for (const SubmissionId id : {first, second}) {
    const Confirmation confirmation = test.store.confirmation(id).value();
    EXPECT_EQ(confirmation.state, ConfirmationState::kDone);
    ASSERT_EQ(confirmation.metrics.size(), 2U);
    EXPECT_EQ(confirmation.metrics[0].value, 0.5);
    EXPECT_EQ(test.store.confirmation_evaluation(id)->id, lease.evaluation);
    EXPECT_EQ(test.store.summary(id)->confirmation->seed, confirmation.seed);
  }
  EXPECT_EQ(test.board(), std::vector<SubmissionId>{first});
  expect_whole(test);
}

TEST(SharedVerdicts, EndTrialsWithoutASeedAndNoOthers) {
  TestStudy test;
  const auto share = [&](const Lease& lease) { return test.store.share_verdict(lease, "f", graph("{}")); };
  const SubmissionId first = test.submitted("one");
  const Lease lease = test.claim();
  EXPECT_EQ(share(lease), Sharing::kNone);
  test.store.complete(lease, passed());
  const Trial copy = test.add(TestStudy::of("two"));
  EXPECT_EQ(share(test.claim()), Sharing::kShared);
  EXPECT_EQ(test.trial(copy.number).state, TrialState::kComplete);
  EXPECT_FALSE(test.trial(copy.number).values.empty());
  EXPECT_EQ(test.store.summary(copy.submission)->same_as, first);
  TrialDraft seeded;
  seeded.submission = copy.submission;
  seeded.seed = 7;
  test.add(seeded);
  const Lease own = test.claim();
  ASSERT_TRUE(own.trial);
  EXPECT_EQ(kind_thrown_by([&] { share(own); }), ErrorKind::kInvalid);
  expect_whole(test);
}

TEST(SharedVerdicts, AnyOrderOfEventsLeavesOneFirstOfEachFlow) {
  std::mt19937 random(20261201);
  const auto below = [&](int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random); };
  for (int round = 0; round < 40; ++round) {
    Shared test;
    std::vector<Lease> running;
    std::map<SubmissionId, std::string> flows;
    const auto end_one = [&] {
      const auto place = running.begin() + below(static_cast<int>(running.size()));
      const Lease lease = *place;
      running.erase(place);
      switch (below(8)) {
        case 0:
          return test.store.release(lease);
        case 1:
          return static_cast<void>(test.store.fail(lease, "crashed"));
        case 2:
          return test.store.complete(lease, ended(Status::kTimeout));
        default:
          return test.store.complete(lease, passed());
      }
    };
    const auto begin_one = [&] {
      const auto lease = test.store.claim("w", 100 * kHour);
      if (!lease) return false;
      if (test.share(*lease, flows.at(lease->submission)) == Sharing::kNone) running.push_back(*lease);
      return true;
    };
    for (int step = 0; step < 60; ++step) {
      test.clock.advance(below(2) * kMinute);
      const int what = below(9);
      if (what == 8 && !flows.empty()) {
        const SubmissionId cancelled = 1 + below(static_cast<int>(flows.size()));
        test.store.cancel(cancelled);
        std::erase_if(running, [&](const Lease& lease) { return lease.submission == cancelled; });
      } else if (what < 2) {
        const SubmissionId id = test.submit(fmt::format("flow {}", flows.size()));
        flows[id] = fmt::format("{}", below(3));
      } else if (what < 5) {
        begin_one();
      } else if (what < 7 && !running.empty()) {
        end_one();
      } else if (!flows.empty()) {
        try {
          test.store.judge_again(1 + below(static_cast<int>(flows.size())));
        } catch (const StoreError& error) {
          EXPECT_EQ(error.kind(), ErrorKind::kConflict);
        }
      }
      expect_whole(test);
    }
    while (test.clock.advance(kMinute), begin_one() || !running.empty()) {
      if (!running.empty()) test.store.complete(running.back(), passed());
      if (!running.empty()) running.pop_back();
    }
    std::map<std::string, std::set<SubmissionId>> firsts;
    for (const auto& [id, flow] : flows) {
      EXPECT_TRUE(is_final(*test.store.find_status(id)));
      if (test.store.get(id)->status != Status::kPassed) continue;
      firsts[flow].insert(test.same_as(id).value_or(id));
    }
    for (const auto& [flow, ids] : firsts) EXPECT_EQ(ids.size(), 1U) << flow;
    EXPECT_EQ(test.board().size(), firsts.size());
    expect_whole(test);
  }
}

}  // namespace
}  // namespace sluice::store::test
