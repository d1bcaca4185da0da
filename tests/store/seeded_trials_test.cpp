// Trials with seeds of their own, which are judged by themselves.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "store/database/invariants.h"
#include "store/database/sqlite.h"
#include "tests/store/study.h"

namespace sluice::store::test {
namespace {

constexpr Time kHour = TestStudy::kHour;

/// A study with a submission that is judged, with accuracy 0.5.
struct JudgedStudy : TestStudy {
  explicit JudgedStudy(int most_tries = 3) : TestStudy(most_tries), submission(submitted("one")) {
    store.complete(claim(), passed(0.5));
  }

  TrialDraft seeded(int64_t seed) const { return {.submission = submission, .flow = {}, .parameters = "{}", .seed = seed}; }
  std::string told() {
    return fmt::format("{} {}", name_of(store.get(submission)->status), store.metrics(submission).at(0).value);
  }

  SubmissionId submission;
};

TEST(SeededTrials, AreJudgedByThemselves) {
  JudgedStudy test;
  const int64_t events = test.store.last_event();
  const AddedTrials added =
      test.store.add_trials("ada", test.id, {test.seeded(7), test.seeded(8), {.submission = test.submission}});
  EXPECT_TRUE(added.has_new_job);
  EXPECT_EQ(test.trial(0).state, TrialState::kWaiting);
  EXPECT_EQ(test.trial(0).seed, 7);
  EXPECT_EQ(test.trial(2).state, TrialState::kComplete) << "it takes what is there";
  test.clock.advance(5);
  const Lease first = test.claim();
  EXPECT_EQ(first.submission, test.submission);
  EXPECT_EQ(first.seed, 7);
  EXPECT_TRUE(first.trial);
  EXPECT_EQ(first.attempt, 1);
  EXPECT_EQ(test.trial(0).state, TrialState::kRunning);
  EXPECT_EQ(test.trial(0).started, *test.clock.time);
  const Lease second = test.claim();
  EXPECT_EQ(second.seed, 8);
  expect_whole(test);
  test.store.append_event("progress", first, "{}");
  test.clock.advance(5);
  test.store.complete(test.store.renew(first, kHour), passed(0.75));
  Verdict below = passed(0.25);
  below.status = Status::kBelowThreshold;
  below.message = "too many wrong answers";
  test.store.complete(second, below);

  EXPECT_EQ(test.trial(0).state, TrialState::kComplete);
  EXPECT_EQ(test.trial(0).values.at(0).value, 0.75);
  EXPECT_EQ(test.trial(0).evaluation, first.evaluation);
  EXPECT_EQ(test.trial(0).status, Status::kPassed);
  EXPECT_EQ(*test.trial(0).finished, *test.trial(0).started + 5);
  EXPECT_EQ(test.trial(1).state, TrialState::kPruned);
  EXPECT_EQ(test.trial(1).message, "too many wrong answers");
  EXPECT_EQ(test.trial(2).values.at(0).value, 0.5);
  EXPECT_FALSE(test.store.claim("w", kHour));
  expect_whole(test);

  EXPECT_EQ(test.told(), "passed 0.5") << "the submission's own verdict is what it was";
  EXPECT_EQ(test.store.evaluations(test.submission).size(), 1U);
  EXPECT_EQ(test.store.last_evaluation(test.submission)->verdict.metrics.at(0).value, 0.5);
  EXPECT_EQ(test.store.leaderboard({.metric = "accuracy"}).size(), 1U);
  EXPECT_EQ(test.store.last_event(), events) << "nothing happened to the submission";
}

TEST(SeededTrials, WriteNothingOfTheirProgress) {
  JudgedStudy test;
  test.add(test.seeded(7));
  const Lease lease = test.claim();
  StoreOptions options = test.clock.options();
  options.busy_timeout_ms = 1;
  Store impatient(test.folder.file("sluice.db"), options);
  Database other(test.folder.file("sluice.db"), Database::Mode::kReadWrite, 1000);
  {
    const Transaction writing(other, Transaction::Kind::kWrite);
    EXPECT_EQ(impatient.append_event("progress", lease, "{}"), test.store.last_event());
  }
  test.store.tell(test.id, 0, {TrialState::kFailed, {}});
  EXPECT_EQ(kind_thrown_by([&] { impatient.append_event("progress", lease, "{}"); }), ErrorKind::kConflict);
}

TEST(SeededTrials, OfANewFlowAreJudgedBesideIt) {
  TestStudy test;
  TrialDraft draft = TestStudy::of("one");
  draft.seed = 0;
  test.add(draft);
  const Lease own = test.claim();
  EXPECT_FALSE(own.trial) << "submissions go first";
  const Lease trial = test.claim();
  EXPECT_EQ(trial.seed, 0);
  EXPECT_EQ(trial.submission, own.submission);
  expect_whole(test);
  test.store.cancel(own.submission);
  EXPECT_EQ(kind_thrown_by([&] { test.store.check_lease(own); }), ErrorKind::kConflict);
  test.store.check_lease(trial);
  test.store.complete(trial, passed());
  EXPECT_EQ(test.trial(0).state, TrialState::kComplete);
  EXPECT_EQ(test.store.get(own.submission)->status, Status::kCancelled);
  expect_whole(test);
}

TEST(SeededTrials, AreTriedAgainAsSubmissionsAre) {
  JudgedStudy test(2);
  test.store.add_trials("ada", test.id, {test.seeded(1), test.seeded(2)});
  test.store.release(test.claim(), 10);
  EXPECT_EQ(test.trial(0).state, TrialState::kWaiting);
  EXPECT_FALSE(test.trial(0).started);
  EXPECT_EQ(test.claim().seed, 2) << "the other one is put off";
  test.clock.advance(10);
  const Lease lost = test.claim();
  EXPECT_EQ(lost.seed, 1);
  EXPECT_EQ(lost.attempt, 1) << "the attempt before was none";
  EXPECT_EQ(test.store.release_leases().size(), 2U);
  EXPECT_EQ(test.trial(1).state, TrialState::kWaiting);
  EXPECT_EQ(kind_thrown_by([&] { test.store.complete(lost, passed()); }), ErrorKind::kConflict);
  expect_whole(test);
  EXPECT_EQ(test.store.fail(test.claim(), "crashed", 10), Status::kQueued);
  EXPECT_EQ(test.store.fail(test.claim(), "crashed", 10), Status::kQueued) << "of the other one: tries are each trial's own";
  test.clock.advance(10);
  const Lease last = test.claim();
  test.clock.advance(2 * kHour);
  EXPECT_EQ(test.store.expire_leases().size(), 1U);
  const int64_t number = last.seed == 1 ? 0 : 1;
  EXPECT_EQ(test.trial(number).state, TrialState::kFailed);
  EXPECT_EQ(test.trial(number).status, Status::kRuntimeError);
  EXPECT_EQ(test.trial(1 - number).state, TrialState::kWaiting);
  EXPECT_EQ(test.told(), "passed 0.5");
  expect_whole(test);
}

TEST(SeededTrials, ToldTheirEndAreJudgedNoMore) {
  JudgedStudy test;
  test.store.add_trials("ada", test.id, {test.seeded(1), test.seeded(2)});
  const Lease lease = test.claim();
  test.store.tell(test.id, 0, {TrialState::kPruned, {}});
  test.store.tell(test.id, 1, {TrialState::kComplete, {{"loss", 1}}});
  EXPECT_EQ(kind_thrown_by([&] { test.store.complete(lease, passed()); }), ErrorKind::kConflict);
  EXPECT_FALSE(test.store.claim("w", kHour));
  EXPECT_TRUE(test.trial(0).is_told);
  EXPECT_FALSE(test.trial(0).evaluation);
  expect_whole(test);
}

TEST(SeededTrials, StayWhereTheyAreWhenTheirSubmissionIsJudgedAgain) {
  JudgedStudy test;
  test.store.add_trials("ada", test.id, {test.seeded(1)});
  test.store.judge_again(test.submission);
  const Lease own = test.claim();
  EXPECT_FALSE(own.trial);
  EXPECT_EQ(own.attempt, 2);
  EXPECT_EQ(test.trial(0).state, TrialState::kWaiting);
  test.store.complete(own, passed(0.6));
  EXPECT_EQ(test.trial(0).state, TrialState::kWaiting);
  test.store.complete(test.claim(), passed(0.7));
  EXPECT_EQ(test.told(), "passed 0.6");
  EXPECT_EQ(test.store.evaluations(test.submission).size(), 2U);
  expect_whole(test);
}

TEST(SeededTrials, AreForTheirModelAndDeviceAlone) {
  JudgedStudy test;
  test.store.add_trials("ada", test.id, {test.seeded(1)});
  const Equipment other{.model = "large", .model_digest = {}, .device = "cpu"};
  EXPECT_FALSE(test.store.claim("w", kHour, other));
  EXPECT_EQ(test.store.count_waiting_for_others({other}), 1);
  EXPECT_TRUE(test.store.claim("w", kHour, {.model = "mini", .model_digest = {}, .device = "cpu"}));
}

TEST(SeededTrials, CountAsNewSubmissionsDo) {
  JudgedStudy test;
  test.store.create_agent("bob", Role::kAgent, 2);
  const StudyId study = test.store.create_study("bob", {"bob's", "", TestStudy::kSettings}).id;
  TrialDraft fresh = TestStudy::of("two");
  fresh.seed = 1;
  EXPECT_EQ(kind_thrown_by([&] {
              test.store.add_trials("bob", study, {fresh, test.seeded(1)});
            }),
            ErrorKind::kInvalid)
      << "three, which no day has";
  EXPECT_EQ(test.store.quota_of("bob").used, 0);
  test.store.add_trials("bob", study, {fresh});
  EXPECT_EQ(test.store.quota_of("bob").used, 2) << "the flow and the trial";
  EXPECT_EQ(kind_thrown_by([&] { test.store.add_trials("bob", study, {test.seeded(1)}); }), ErrorKind::kQuota);
  EXPECT_EQ(kind_thrown_by([&] { test.store.submit("bob", draft("three")); }), ErrorKind::kQuota);
}

TEST(SeededTrials, TheirEvaluationsCanBeRead) {
  JudgedStudy test(1);
  test.store.add_trials("ada", test.id, {test.seeded(1), test.seeded(2), {.submission = test.submission}});
  EXPECT_FALSE(test.store.trial_evaluation(test.id, 0)) << "it waits";
  const Lease first = test.claim();
  EXPECT_EQ(test.store.trial_evaluation(test.id, 0)->outcome, "") << "it runs";
  Verdict verdict = passed(0.75);
  verdict.artifacts = {{"report.json", "application/json", "{}"}};
  test.store.complete(first, verdict);
  const auto judged = test.store.trial_evaluation(test.id, 0);
  EXPECT_EQ(judged->id, first.evaluation);
  EXPECT_EQ(judged->verdict.metrics.at(0).value, 0.75);
  EXPECT_EQ(test.store.trial_artifact(test.id, 0, "report.json")->bytes, "{}");
  EXPECT_FALSE(test.store.trial_artifact(test.id, 0, "plan.txt"));
  test.claim();
  test.store.tell(test.id, 1, {TrialState::kFailed, {}});
  EXPECT_EQ(test.store.trial_evaluation(test.id, 1)->outcome, "cancelled");
  EXPECT_EQ(test.store.trial_evaluation(test.id, 2)->id, test.store.last_evaluation(test.submission)->id);
  EXPECT_FALSE(test.store.trial_evaluation(test.id, 3));
}

TEST(SeededTrials, AreToldWhatConcernsTrials) {
  JudgedStudy test(1);
  test.store.add_trials("ada", test.id, {test.seeded(1), test.seeded(2)});
  const Lease crashed = test.claim();
  test.store.fail(crashed, "crashed");
  EXPECT_EQ(test.trial(0).message, "crashed");
  EXPECT_NE(test.trial(0).hint.find("add the trial once more"), std::string::npos) << test.trial(0).hint;
  try {
    test.store.check_lease(crashed);
    FAIL();
  } catch (const StoreError& error) {
    EXPECT_NE(std::string(error.what()).find("a trial of submission 1"), std::string::npos) << error.what();
    EXPECT_NE(error.hint().find("the trial was told its end"), std::string::npos) << error.hint();
  }
}

TEST(SeededTrials, OfWhatItsOwnerCancelledAreTheOwners) {
  TestStudy test;
  test.store.create_agent("bob", Role::kAgent, 5);
  test.store.create_agent("root", Role::kAdmin, 0);
  const StudyId study = test.store.create_study("bob", {"bob's", "", TestStudy::kSettings}).id;
  const SubmissionId cancelled = test.submitted("one");
  test.store.cancel(cancelled);
  TrialDraft by_number{.submission = cancelled, .flow = {}, .parameters = "{}", .seed = 1};
  TrialDraft by_script = TestStudy::of("one");
  by_script.seed = 1;
  for (const TrialDraft& trial : {by_number, by_script}) {
    EXPECT_EQ(kind_thrown_by([&] { test.store.add_trials("bob", study, {trial}); }), ErrorKind::kConflict);
  }
  EXPECT_EQ(test.store.quota_of("bob").used, 0);
  test.store.add_trials("root", study, {by_number});
  EXPECT_EQ(test.add(by_number).state, TrialState::kWaiting) << "ada's own";
  expect_whole(test);
}

TEST(SeededTrials, TakeTurnsWithOtherAgents) {
  JudgedStudy test;
  test.store.create_agent("bob", Role::kAgent, 5);
  test.store.add_trials("ada", test.id, {test.seeded(1), test.seeded(2)});
  const SubmissionId other = test.store.submit("bob", draft("bob's")).id;
  const Lease first = test.claim();
  EXPECT_EQ(first.submission, other) << "bob was served least";
  EXPECT_EQ(test.claim().seed, 1);
  const SubmissionId next = test.store.submit("bob", draft("bob's next")).id;
  test.store.complete(first, passed());
  EXPECT_EQ(test.claim().submission, next) << "a trial that runs is a job of ada's";
}

TEST(SeededTrials, ASeedIsPartOfTheRequest) {
  JudgedStudy test;
  test.store.add_trials("ada", test.id, {test.seeded(1)}, "key");
  EXPECT_FALSE(test.store.add_trials("ada", test.id, {test.seeded(1)}, "key").is_new);
  EXPECT_EQ(test.kind_of({test.seeded(2)}, "key"), ErrorKind::kConflict);
  EXPECT_EQ(test.kind_of({{.submission = test.submission}}, "key"), ErrorKind::kConflict);
  EXPECT_EQ(test.kind_of({test.seeded(-1)}), ErrorKind::kInvalid);
}

TEST(SeededTrials, ThatContradictTheirJobsAreFound) {
  JudgedStudy test;
  test.store.add_trials("ada", test.id, {test.seeded(1), test.seeded(2), {.submission = test.submission}});
  test.store.complete(test.claim(), passed());
  test.submitted("two");
  Database database(test.folder.file("sluice.db"), Database::Mode::kReadWrite, 1000);
  const auto expect = [&](const std::string& sql, const std::string& problem) {
    database.execute(("SAVEPOINT before;" + sql).c_str());
    EXPECT_EQ(broken_invariants(database), std::vector<std::string>({problem})) << sql;
    database.execute("ROLLBACK TO before; RELEASE before");
  };
  expect("DELETE FROM queue WHERE trial = 2",
         "trial 1 of study 1 has a seed and has not ended, and is not where its job in the queue is");
  expect("UPDATE trials SET state = 'running', started = 1 WHERE id = 2",
         "trial 1 of study 1 has a seed and has not ended, and is not where its job in the queue is");
  expect("INSERT INTO queue (submission, trial, agent, priority, available) VALUES (1, 1, 1, 0, 0)",
         "trial 0 of study 1 has ended or has no seed, and is in the queue");
  expect("UPDATE queue SET submission = 2 WHERE trial = 2", "trial 1 of study 1 is in the queue for another submission or agent");
  expect("UPDATE trials SET evaluation = 1 WHERE id = 1",
         "trial 0 of study 1 was ended by an evaluation that is not its own, though it has a seed, or by another trial's");
  expect("UPDATE trials SET evaluation = 2 WHERE id = 3",
         "trial 2 of study 1 was ended by an evaluation that is not its own, though it has a seed, or by another trial's");
  expect("UPDATE submissions SET judged = 2 WHERE id = 1", "submission 1 was judged by an evaluation of another one");
  for (const char* sql : {"INSERT INTO queue (submission, trial, agent, priority, available) VALUES (2, 2, 1, 0, 0)",
                          "INSERT INTO queue (submission, trial, agent, priority, available) VALUES (2, NULL, 1, 0, 0)",
                          "INSERT INTO queue (submission, trial, agent, priority, available) VALUES (2, 9, 1, 0, 0)",
                          "INSERT INTO evaluations (submission, trial, attempt, worker, started) VALUES (1, NULL, 1, 'w', 1)",
                          "INSERT INTO evaluations (submission, trial, attempt, worker, started) VALUES (1, 1, 1, 'w', 1)",
                          "UPDATE trials SET seed = -1 WHERE id = 1"}) {
    EXPECT_THROW(database.execute(sql), StoreError) << sql;
  }
  expect_whole(test);
}

}  // namespace
}  // namespace sluice::store::test
