#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "store/database/invariants.h"
#include "store/database/sqlite.h"
#include "store/error.h"
#include "tests/store/study.h"

namespace sluice::store::test {
namespace {

constexpr Time kHour = 3600LL * 1000000;

Verdict ended(Status status) {
  Verdict verdict = passed();
  verdict.status = status;
  return verdict;
}

TEST(Trials, FollowTheirSubmissionToItsVerdict) {
  TestStudy test;
  const Trial made = test.add(TestStudy::of("one", R"({"ratio": 0.25, "first": 1})"));
  EXPECT_EQ(made.number, 0);
  EXPECT_EQ(made.agent, "ada");
  EXPECT_EQ(made.parameters, R"({"first":1,"ratio":0.25})");
  EXPECT_EQ(made.state, TrialState::kWaiting);
  EXPECT_EQ(made.created, *test.clock.time);
  EXPECT_FALSE(made.started);
  EXPECT_EQ(test.store.get(made.submission)->settings, TestStudy::kSettings);

  test.clock.advance(7);
  Lease lease = test.claim();
  EXPECT_EQ(test.trial(0).state, TrialState::kRunning);
  EXPECT_EQ(test.trial(0).started, *test.clock.time);
  test.store.fail(lease, "crashed");
  EXPECT_EQ(test.trial(0).state, TrialState::kWaiting);
  EXPECT_FALSE(test.trial(0).started);
  test.store.release(test.claim());
  EXPECT_EQ(test.trial(0).state, TrialState::kWaiting);
  test.clock.advance(7);
  lease = test.claim();
  test.clock.advance(5);
  test.store.complete(lease, passed(0.75, 3));

  const Trial judged = test.trial(0);
  EXPECT_EQ(judged.state, TrialState::kComplete);
  EXPECT_FALSE(judged.is_told);
  EXPECT_EQ(judged.evaluation, lease.evaluation);
  EXPECT_EQ(*judged.finished, *judged.started + 5);
  ASSERT_EQ(judged.values.size(), 2U);
  EXPECT_EQ(judged.values[0].name, "accuracy");
  EXPECT_EQ(judged.values[0].value, 0.75);
  EXPECT_EQ(judged.values[0].low, 0.75 - 0.1);
  expect_whole(test);
}

TEST(Trials, OfOneSubmissionShareItsVerdict) {
  TestStudy test;
  const AddedTrials added =
      test.store.add_trials("ada", test.id, {TestStudy::of("one"), TestStudy::of("one"), TestStudy::of("two")});
  EXPECT_EQ(added.count, 3);
  EXPECT_TRUE(added.has_new_job);
  EXPECT_EQ(test.trial(0).submission, test.trial(1).submission);
  EXPECT_NE(test.trial(0).submission, test.trial(2).submission);
  test.store.complete(test.claim(), passed());
  EXPECT_EQ(test.trial(0).state, TrialState::kComplete);
  EXPECT_EQ(test.trial(1).evaluation, test.trial(0).evaluation);
  EXPECT_EQ(test.trial(2).state, TrialState::kWaiting);
  EXPECT_EQ(test.store.evaluations(test.trial(0).submission).size(), 1U) << "judged once";

  const AddedTrials later = test.store.add_trials("ada", test.id, {{.submission = test.trial(0).submission}});
  EXPECT_FALSE(later.has_new_job);
  EXPECT_EQ(test.trial(3).state, TrialState::kComplete) << "at once";
  EXPECT_EQ(test.trial(3).evaluation, test.trial(0).evaluation);
  const Lease lease = test.claim();
  test.add({.submission = lease.submission});
  EXPECT_EQ(test.trial(4).state, TrialState::kRunning);
  EXPECT_EQ(test.trial(4).started, test.trial(2).started);
  EXPECT_EQ(test.store.study(test.id)->trials,
            (std::map<TrialState, int64_t>{{TrialState::kRunning, 2}, {TrialState::kComplete, 3}}));
  expect_whole(test);
}

TEST(Trials, EndAsTheVerdictSays) {
  TestStudy test(1);
  const auto state_after = [&](const std::string& flow, const std::function<void(const Lease&)>& end) {
    const int64_t number = test.add(TestStudy::of(flow)).number;
    const Lease lease = test.claim();
    end(lease);
    EXPECT_EQ(test.trial(number).evaluation, lease.evaluation);
    return test.trial(number).state;
  };
  const auto judged = [&](Status status) {
    return [&test, status](const Lease& lease) { test.store.complete(lease, ended(status)); };
  };
  EXPECT_EQ(state_after("passed", judged(Status::kPassed)), TrialState::kComplete);
  EXPECT_EQ(state_after("below", judged(Status::kBelowThreshold)), TrialState::kPruned);
  for (const Status status : {Status::kRejectedStatic, Status::kIncorrectNumerical, Status::kTimeout, Status::kRuntimeError}) {
    EXPECT_EQ(state_after(name_of(status), judged(status)), TrialState::kFailed) << name_of(status);
  }
  EXPECT_EQ(state_after("crashes", [&](const Lease& lease) { test.store.fail(lease, "crashed"); }), TrialState::kFailed);
  EXPECT_EQ(state_after("lost",
                        [&](const Lease&) {
                          test.clock.advance(2 * kHour);
                          test.store.expire_leases();
                        }),
            TrialState::kFailed);
  EXPECT_EQ(state_after("cancelled", [&](const Lease& lease) { test.store.cancel(lease.submission); }), TrialState::kFailed);
  expect_whole(test);
}

TEST(Trials, CancelledBeforeAnythingWasJudgedHaveNoEvaluation) {
  TestStudy test;
  const SubmissionId submission = test.add(TestStudy::of("one")).submission;
  test.store.cancel(submission);
  EXPECT_EQ(test.trial(0).state, TrialState::kFailed);
  EXPECT_FALSE(test.trial(0).evaluation);
  EXPECT_EQ(test.trial(0).finished, *test.clock.time);
  const Trial later = test.add({.submission = submission});
  EXPECT_EQ(later.state, TrialState::kFailed);

  // Cancelled in the queue after an earlier verdict: that is not what ended the trial.
  const SubmissionId judged = test.submitted("two");
  test.store.complete(test.claim(), passed());
  test.store.judge_again(judged);
  const int64_t number = test.add({.submission = judged}).number;
  EXPECT_EQ(test.trial(number).state, TrialState::kWaiting);
  test.store.cancel(judged);
  EXPECT_EQ(test.trial(number).state, TrialState::kFailed);
  EXPECT_FALSE(test.trial(number).evaluation);
  EXPECT_TRUE(test.trial(number).values.empty());

  // Nor is it what was cancelled while it ran, before that.
  const SubmissionId twice = test.submitted("three");
  test.claim();
  test.store.cancel(twice);
  test.clock.advance(5);
  EXPECT_TRUE(test.store
                  .submit("ada",
                          [] {
                            Draft again = draft("three");
                            again.settings = TestStudy::kSettings;
                            return again;
                          }())
                  .is_new);
  const int64_t waiting = test.add({.submission = twice}).number;
  EXPECT_EQ(test.trial(waiting).state, TrialState::kWaiting);
  test.clock.advance(5);
  test.store.cancel(twice);
  EXPECT_EQ(test.trial(waiting).state, TrialState::kFailed);
  EXPECT_FALSE(test.trial(waiting).evaluation);
  EXPECT_EQ(test.trial(waiting).finished, *test.clock.time);
  expect_whole(test);
}

TEST(Trials, ThatHaveEndedStayAsTheyAre) {
  TestStudy test;
  const Trial made = test.add(TestStudy::of("one"));
  test.store.complete(test.claim(), passed(0.5));
  test.store.judge_again(made.submission);
  EXPECT_EQ(test.trial(0).state, TrialState::kComplete);
  const Trial next = test.add({.submission = made.submission});
  EXPECT_EQ(next.state, TrialState::kWaiting);
  test.store.complete(test.claim(), passed(0.9));
  EXPECT_EQ(test.trial(0).values[0].value, 0.5);
  EXPECT_EQ(test.trial(next.number).values[0].value, 0.9);
  expect_whole(test);
}

TEST(Trials, HandedInAgainWaitForTheVerdictThatFollows) {
  TestStudy test(1);
  const Trial made = test.add(TestStudy::of("one"));
  test.store.fail(test.claim(), "crashed");
  const AddedTrials again = test.store.add_trials("ada", test.id, {TestStudy::of("one")});
  EXPECT_TRUE(again.has_new_job);
  EXPECT_EQ(test.trial(0).state, TrialState::kFailed);
  EXPECT_EQ(test.trial(1).submission, made.submission);
  EXPECT_EQ(test.trial(1).state, TrialState::kWaiting);
  test.store.release_leases();
  test.store.complete(test.claim(), passed());
  EXPECT_EQ(test.trial(1).state, TrialState::kComplete);
  EXPECT_EQ(test.trial(0).state, TrialState::kFailed);
}

TEST(Trials, AreAddedAllOrNone) {
  TestStudy test;
  EXPECT_EQ(test.kind_of({TestStudy::of("one"), {.submission = 99}}), ErrorKind::kNotFound);
  TrialDraft orphan = TestStudy::of("two");
  orphan.flow->parents = {99};
  EXPECT_EQ(test.kind_of({TestStudy::of("one"), orphan}), ErrorKind::kNotFound);
  EXPECT_TRUE(test.store.list({}).submissions.empty());
  EXPECT_EQ(test.store.trials(test.id, {}).total, 0);
  EXPECT_EQ(test.add(TestStudy::of("one")).number, 0);
}

TEST(Trials, WhatIsNoneIsRefused) {
  TestStudy test;
  const SubmissionId submission = test.submitted("one");
  EXPECT_EQ(test.kind_of({}), ErrorKind::kInvalid);
  EXPECT_EQ(test.kind_of(std::vector<TrialDraft>(Limits::kTrialsAtOnce + 1, {.submission = submission})), ErrorKind::kInvalid);
  EXPECT_EQ(test.kind_of({TrialDraft{}}), ErrorKind::kInvalid) << "of nothing";
  EXPECT_EQ(test.kind_of({{.submission = submission, .flow = draft("two")}}), ErrorKind::kInvalid) << "of both";
  EXPECT_EQ(test.kind_of({{.submission = submission, .flow = {}, .parameters = "[1]"}}), ErrorKind::kInvalid);
  EXPECT_EQ(
      test.kind_of(
          {{.submission = submission, .flow = {}, .parameters = R"({"a":")" + std::string(Limits::kParameters, 'x') + "\"}"}}),
      ErrorKind::kInvalid);
  EXPECT_EQ(test.kind_of({TestStudy::of("two\nlines")}), ErrorKind::kInvalid);
  EXPECT_EQ(test.kind_of({{.submission = submission}}, std::string(Limits::kIdempotencyKey + 1, 'k')), ErrorKind::kInvalid);
  EXPECT_EQ(kind_thrown_by([&] { test.store.add_trials("ada", test.id + 1, {{.submission = submission}}); }),
            ErrorKind::kNotFound);
  EXPECT_EQ(kind_thrown_by([&] { test.store.add_trials("nobody", test.id, {{.submission = submission}}); }),
            ErrorKind::kNotFound);
  EXPECT_FALSE(test.store.trial(test.id, 0));
}

TEST(Trials, HaveTheSettingsOfTheirStudy) {
  TestStudy test;
  const SubmissionId other = test.store.submit("ada", draft("one")).id;
  EXPECT_EQ(test.kind_of({{.submission = other}}), ErrorKind::kInvalid);
  TrialDraft given = TestStudy::of("one");
  given.flow->settings = R"({"suite":"full"})";
  EXPECT_NE(test.add(given).submission, other);
  EXPECT_EQ(test.store.get(test.trial(0).submission)->settings, TestStudy::kSettings) << "whatever the draft says";
}

TEST(Trials, AreNotAddedToWhatIsClosed) {
  TestStudy test;
  test.store.add_trials("ada", test.id, {TestStudy::of("one")}, "key");
  test.store.set_study_state(test.id, StudyState::kClosed);
  EXPECT_EQ(test.kind_of({TestStudy::of("two")}), ErrorKind::kConflict);
  EXPECT_FALSE(test.store.add_trials("ada", test.id, {TestStudy::of("one")}, "key").is_new) << "it was added before";
  test.store.complete(test.claim(), passed());
  EXPECT_EQ(test.trial(0).state, TrialState::kComplete) << "what it has goes on";
  test.store.set_study_state(test.id, StudyState::kOpen);
  EXPECT_EQ(test.add(TestStudy::of("two")).number, 1);
}

TEST(Trials, TheSameKeyAddsNothingTwice) {
  TestStudy test;
  test.store.add_trials("ada", test.id, {TestStudy::of("one")});
  const std::vector<TrialDraft> drafts = {TestStudy::of("one", R"({"a":1})"), TestStudy::of("two")};
  const AddedTrials first = test.store.add_trials("ada", test.id, drafts, "key");
  EXPECT_TRUE(first.is_new);
  const AddedTrials again = test.store.add_trials("ada", test.id, drafts, "key");
  EXPECT_FALSE(again.is_new);
  EXPECT_FALSE(again.has_new_job);
  EXPECT_EQ(again.first, first.first);
  EXPECT_EQ(again.count, 2);
  EXPECT_EQ(test.store.trials(test.id, {}).total, 3);
  EXPECT_EQ(test.kind_of({TestStudy::of("one", R"({"a":2})"), TestStudy::of("two")}, "key"), ErrorKind::kConflict);
  const StudyId other = test.store.create_study("ada", {"other", "", TestStudy::kSettings}).id;
  EXPECT_TRUE(test.store.add_trials("ada", other, drafts, "key").is_new) << "a key is of one study";
  test.clock.advance(8 * 24 * kHour);
  EXPECT_TRUE(test.store.add_trials("ada", test.id, drafts, "key 2").is_new);
  EXPECT_TRUE(test.store.add_trials("ada", test.id, drafts, "key").is_new) << "by then it is forgotten";
  expect_whole(test);
}

TEST(Trials, AndTheirFlowsAreCountedByDays) {
  TestStudy test;
  test.store.create_agent("bob", Role::kAgent, 3);
  test.store.create_agent("root", Role::kAdmin, 0);
  const StudyId study = test.store.create_study("bob", {"bob's", "", TestStudy::kSettings}).id;
  const auto add = [&](const std::vector<TrialDraft>& drafts, const char* agent = "bob") {
    test.store.add_trials(agent, study, drafts);
  };
  EXPECT_EQ(kind_thrown_by([&] { add(std::vector<TrialDraft>(4, TestStudy::of("1"))); }), ErrorKind::kInvalid)
      << "which waiting does not mend";
  test.store.submit("bob", draft("outside"));
  EXPECT_EQ(kind_thrown_by([&] {
              add({TestStudy::of("1"), TestStudy::of("2"), TestStudy::of("3")});
            }),
            ErrorKind::kQuota)
      << "of new submissions";
  add({TestStudy::of("1"), TestStudy::of("2")});
  EXPECT_EQ(kind_thrown_by([&] { add({TestStudy::of("1"), TestStudy::of("1")}); }), ErrorKind::kQuota) << "of trials";
  add({TestStudy::of("1")});
  EXPECT_EQ(kind_thrown_by([&] { add({TestStudy::of("1")}); }), ErrorKind::kQuota);
  add({TestStudy::of("1"), TestStudy::of("4")}, "root");
  EXPECT_EQ(test.store.quota_of("bob").used, 3);
  test.clock.advance(24 * kHour);
  add({TestStudy::of("1")});
  EXPECT_EQ(test.store.trials(study, {}).total, 6);
}

TEST(Trials, CanBeToldTheirEnd) {
  TestStudy test;
  test.store.add_trials("ada", test.id, {TestStudy::of("one"), TestStudy::of("one"), TestStudy::of("one"), TestStudy::of("one")});
  test.store.tell(test.id, 0, {TrialState::kComplete, {{"loss", 0.125}, {"accuracy", 1}}});
  test.clock.advance(3);
  const Lease lease = test.claim();
  const Time started = *test.clock.time;
  test.clock.advance(3);
  test.store.tell(test.id, 1, {TrialState::kPruned, {{"accuracy", 0.25}}});
  test.store.tell(test.id, 2, {TrialState::kFailed, {}});
  test.store.complete(lease, passed());
  const Trial told = test.trial(0);
  EXPECT_EQ(told.state, TrialState::kComplete);
  EXPECT_TRUE(told.is_told);
  EXPECT_FALSE(told.evaluation);
  EXPECT_FALSE(told.started);
  ASSERT_EQ(told.values.size(), 2U);
  EXPECT_EQ(told.values[1].name, "loss");
  EXPECT_EQ(told.values[1].value, 0.125);
  EXPECT_EQ(test.trial(1).state, TrialState::kPruned);
  EXPECT_EQ(test.trial(1).started, started);
  EXPECT_EQ(*test.trial(1).finished, started + 3);
  EXPECT_EQ(test.trial(2).state, TrialState::kFailed);
  EXPECT_EQ(test.trial(3).state, TrialState::kComplete);
  EXPECT_FALSE(test.trial(3).is_told);
  EXPECT_EQ(test.store.get(told.submission)->status, Status::kPassed) << "its submission is judged all the same";
  expect_whole(test);
}

TEST(Trials, CanBeToldTheSameAgain) {
  TestStudy test;
  test.store.add_trials("ada", test.id, {TestStudy::of("one"), TestStudy::of("one"), TestStudy::of("one")});
  const Told told{TrialState::kComplete, {{"loss", 0.1}, {"steps", 3}}};
  EXPECT_TRUE(test.store.tell(test.id, 0, told));
  const Time finished = *test.clock.time;
  test.clock.advance(3);
  EXPECT_FALSE(test.store.tell(test.id, 0, told));
  EXPECT_EQ(test.trial(0).finished, finished);
  const auto kind_of = [&](int64_t number, const Told& other) {
    return kind_thrown_by([&] { test.store.tell(test.id, number, other); });
  };
  EXPECT_EQ(kind_of(0, {TrialState::kPruned, told.values}), ErrorKind::kConflict);
  EXPECT_EQ(kind_of(0, {TrialState::kComplete, {{"loss", 0.1}}}), ErrorKind::kConflict);
  EXPECT_EQ(kind_of(0, {TrialState::kComplete, {{"loss", 0.1}, {"steps", 4}}}), ErrorKind::kConflict);
  test.store.tell(test.id, 1, {TrialState::kFailed, {}});
  EXPECT_FALSE(test.store.tell(test.id, 1, {TrialState::kFailed, {}}));
  test.store.cancel(test.trial(2).submission);
  EXPECT_EQ(kind_of(2, {TrialState::kFailed, {}}), ErrorKind::kConflict) << "that was not told";
  expect_whole(test);
}

TEST(Trials, AreToldWhatCanBe) {
  TestStudy test;
  test.add(TestStudy::of("one"));
  const auto kind_of = [&](const Told& told) { return kind_thrown_by([&] { test.store.tell(test.id, 0, told); }); };
  EXPECT_EQ(kind_of({TrialState::kWaiting, {}}), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of({TrialState::kRunning, {{"a", 1}}}), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of({TrialState::kComplete, {}}), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of({TrialState::kFailed, {{"a", 1}}}), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of({TrialState::kComplete, {{"", 1}}}), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of({TrialState::kComplete, {{"a\nb", 1}}}), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of({TrialState::kComplete, {{"a", NAN}}}), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of({TrialState::kComplete, {{"a", INFINITY}}}), ErrorKind::kInvalid);
  Told many;
  for (size_t i = 0; i <= Limits::kToldValues; ++i) many.values.emplace(fmt::format("value {}", i), 1);
  EXPECT_EQ(kind_of(many), ErrorKind::kInvalid);
  EXPECT_EQ(kind_thrown_by([&] { test.store.tell(test.id, 1, {TrialState::kFailed, {}}); }), ErrorKind::kNotFound);
  EXPECT_EQ(test.trial(0).state, TrialState::kWaiting);
  test.store.complete(test.claim(), passed());
  EXPECT_EQ(kind_of({TrialState::kComplete, {{"a", 1}}}), ErrorKind::kConflict);
  EXPECT_EQ(test.trial(0).values.size(), 2U);
}

TEST(Trials, AreListedByNumberPageByPage) {
  TestStudy test;
  for (int i = 0; i < 5; ++i) test.add(TestStudy::of(i % 2 == 0 ? "even" : "odd"));
  test.store.add_trials("ada", test.store.create_study("ada", {"other", "", TestStudy::kSettings}).id, {TestStudy::of("even")});
  test.store.complete(test.claim(), passed());
  const auto numbers = [](const TrialPage& page) {
    std::vector<int64_t> found;
    for (const Trial& trial : page.trials) found.push_back(trial.number);
    return found;
  };
  const TrialPage first = test.store.trials(test.id, {}, "", 1);
  EXPECT_EQ(numbers(first), (std::vector<int64_t>{0}));
  EXPECT_EQ(first.total, 5);
  const TrialPage rest = test.store.trials(test.id, {}, first.next);
  EXPECT_EQ(numbers(rest), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(rest.next, "");
  EXPECT_FALSE(rest.total);
  EXPECT_EQ(numbers(test.store.trials(test.id, {.state = TrialState::kComplete})), (std::vector<int64_t>{0, 2, 4}));
  const TrialFilter odd{.state = {}, .submission = test.trial(1).submission};
  EXPECT_EQ(numbers(test.store.trials(test.id, odd)), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(test.store.trials(test.id, odd).total, 2);
  EXPECT_EQ(test.store.trials(test.id, {.state = TrialState::kFailed}).total, 0);
}

TEST(Trials, TheBestComeFirst) {
  TestStudy test;
  for (const double accuracy : {0.5, 0.75, 0.25}) {
    test.add(TestStudy::of(fmt::format("flow {}", accuracy)));
    test.store.complete(test.claim(), passed(accuracy));
  }
  test.add(TestStudy::of("below"));
  Verdict below = passed(0.99);
  below.status = Status::kBelowThreshold;
  test.store.complete(test.claim(), below);
  test.store.add_trials("ada", test.id, {TestStudy::of("last"), TestStudy::of("last")});
  test.store.tell(test.id, 4, {TrialState::kComplete, {{"accuracy", 0.5}}});
  test.store.tell(test.id, 5, {TrialState::kComplete, {{"loss", 3}}});
  const auto numbers = [&](const Objective& objective) {
    std::vector<int64_t> found;
    for (const Trial& trial : test.store.best_trials(test.id, objective).trials) found.push_back(trial.number);
    return found;
  };
  EXPECT_EQ(numbers({.metric = "accuracy"}), (std::vector<int64_t>{1, 0, 4, 2}));
  EXPECT_EQ(numbers({.metric = "accuracy", .is_maximized = false}), (std::vector<int64_t>{2, 0, 4, 1}));
  EXPECT_EQ(numbers({.metric = "accuracy", .is_maximized = true, .limit = 2, .skip = 1}), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(numbers({.metric = "loss"}), (std::vector<int64_t>{5}));
  EXPECT_EQ(numbers({.metric = "nothing"}), std::vector<int64_t>());
  EXPECT_EQ(test.store.best_trials(test.id, {.metric = "accuracy", .is_maximized = true, .limit = 1}).total, 4);
}

TEST(Trials, TheDatabaseItselfRefusesContradictions) {
  TestStudy test;
  test.add(TestStudy::of("one"));
  test.store.complete(test.claim(), passed());
  test.add(TestStudy::of("two"));
  Database database(test.folder.file("sluice.db"), Database::Mode::kReadWrite, 1000);
  for (const char* sql : {
           "INSERT INTO studies (agent, name, goal, settings, state, created) VALUES (9, 'x', '', '{}', 'open', 1)",
           "INSERT INTO studies (agent, name, goal, settings, state, created) VALUES (1, 'study', '', '{}', 'open', 1)",
           "INSERT INTO studies (agent, name, goal, settings, state, created) VALUES (1, 'x', '', '{}', 'lost', 1)",
           "INSERT INTO trials (study, number, agent, submission, parameters, state, created) VALUES (1, 0, 1, 1, '', 'waiting', "
           "1)",
           "INSERT INTO trials (study, number, agent, submission, parameters, state, created) VALUES (1, -1, 1, 1, '', "
           "'waiting', 1)",
           "INSERT INTO trials (study, number, agent, submission, parameters, state, created) VALUES (9, 2, 1, 1, '', 'waiting', "
           "1)",
           "INSERT INTO trials (study, number, agent, submission, parameters, state, created) VALUES (1, 2, 9, 1, '', 'waiting', "
           "1)",
           "INSERT INTO trials (study, number, agent, submission, parameters, state, created) VALUES (1, 2, 1, 9, '', 'waiting', "
           "1)",
           "UPDATE trials SET state = 'lost' WHERE number = 0",
           "UPDATE trials SET state = 'running' WHERE number = 0",
           "UPDATE trials SET finished = NULL WHERE number = 0",
           "UPDATE trials SET evaluation = NULL WHERE number = 0",
           "UPDATE trials SET evaluation = 9 WHERE number = 0",
           "UPDATE trials SET told = 1 WHERE number = 0",
           "UPDATE trials SET told = 1 WHERE number = 1",
           "UPDATE trials SET told = 2, evaluation = NULL WHERE number = 0",
           "UPDATE trials SET evaluation = 1 WHERE number = 1",
           "UPDATE trials SET started = 1 WHERE number = 1",
           "UPDATE trials SET state = 'running' WHERE number = 1",
           "INSERT INTO told_values (trial, name, value) VALUES (9, 'x', 1)",
           "INSERT INTO trial_requests (study, key, request_hash, first, count, created) VALUES (9, 'k', x'', 0, 1, 1)",
           "INSERT INTO trial_requests (study, key, request_hash, first, count, created) VALUES (1, 'k', x'', 0, 0, 1)",
       }) {
    EXPECT_THROW(database.execute(sql), StoreError) << sql;
  }
  expect_whole(test);
}

TEST(Trials, AreFoundByTheirEvaluation) {
  TestStudy test;
  Database database(test.folder.file("sluice.db"), Database::Mode::kReadWrite, 1000);
  // What SQLite looks for whenever an evaluation is removed.
  Query plan(database, "EXPLAIN QUERY PLAN SELECT 1 FROM trials WHERE evaluation = ?", 1);
  ASSERT_TRUE(plan.step());
  EXPECT_NE(plan.text(3).find("trials_of_evaluation"), std::string::npos) << plan.text(3);
}

TEST(Fsck, FindsTrialsThatContradictTheirSubmissions) {
  TestStudy test;
  test.add(TestStudy::of("one"));
  test.store.complete(test.claim(), passed());
  test.store.add_trials("ada", test.id, {TestStudy::of("two"), TestStudy::of("three")}, "key");
  test.store.tell(test.id, 2, {TrialState::kComplete, {{"a", 1}}});
  Database database(test.folder.file("sluice.db"), Database::Mode::kReadWrite, 1000);
  const auto found_after = [&](const std::string& sql) {
    database.execute(("SAVEPOINT before;" + sql).c_str());
    std::string found;
    for (const std::string& problem : broken_invariants(database)) found += problem + "\n";
    database.execute("ROLLBACK TO before; RELEASE before");
    return found;
  };
  const auto expect = [&](const std::string& sql, const std::string& problem) {
    EXPECT_EQ(found_after(sql), problem + "\n") << sql;
  };
  EXPECT_EQ(found_after("SELECT 1"), "");
  expect("UPDATE trials SET state = 'running', started = 1 WHERE number = 1",
         "trial 1 of study 1 has not ended, and is not where its submission is");
  expect("UPDATE trials SET state = 'waiting', started = NULL, evaluation = NULL, finished = NULL WHERE number = 0",
         "trial 0 of study 1 has not ended, and is not where its submission is");
  expect("UPDATE trials SET submission = 2 WHERE number = 0",
         "trial 0 of study 1 was ended by an evaluation of another submission");
  expect("UPDATE trials SET state = 'failed' WHERE number = 0", "trial 0 of study 1 ended as its evaluation does not say");
  expect("UPDATE trials SET number = 7 WHERE number = 2",
         "trial 7 of study 1 is the last of trials that are not numbered one by one");
  expect("DELETE FROM told_values", "trial 2 of study 1 is told as complete without a value, or as failed with one");
  expect("UPDATE trials SET state = 'failed' WHERE number = 2",
         "trial 2 of study 1 is told as complete without a value, or as failed with one");
  expect("INSERT INTO told_values VALUES (1, 'a', 1)", "trial 0 of study 1 has values that nobody told");
  expect("UPDATE trial_requests SET count = 3",
         "trial 1 of study 1 is the first that an idempotency key stands for, and not all of those are there");
  EXPECT_NE(found_after("UPDATE studies SET settings = '{}'")
                .find("trial 0 of study 1 has a submission with other settings than its study"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::store::test
