// Submissions that passed, judged once more by questions that nobody could know.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "store/database/invariants.h"
#include "store/database/sqlite.h"
#include "tests/store/study.h"

namespace sluice::store::test {
namespace {

constexpr Time kHour = 3600LL * 1000000;

Verdict ended(Status status) {
  Verdict verdict = passed();
  verdict.status = status;
  return verdict;
}

Verdict measured(double score, double speedup, double margin = 0.1) {
  Verdict verdict;
  verdict.metrics = {{"score", "", 0, score, score - margin, score + margin, ""},
                     {"speedup", "", 0, speedup, speedup - margin, speedup + margin, "x dense"}};
  return verdict;
}

/// A store with submissions that are judged at once.
struct Confirmed : TestStore {
  explicit Confirmed(int most_tries = 3) : TestStore(most_tries) {}

  SubmissionId judged(const std::string& name, const Verdict& verdict = passed(), const std::string& agent = "ada",
                      const std::string& settings = R"({"model":"mini","suite":"quick"})") {
    Draft made = draft(name);
    made.settings = settings;
    made.priority = 9;  // before all that waits
    const SubmissionId id = store.submit(agent, made).id;
    store.complete(claim(), verdict);
    return id;
  }
  Lease claim() { return store.claim("w", kHour).value(); }
  Confirmation confirmation(SubmissionId id) { return store.confirmation(id).value(); }
  ErrorKind refusal(SubmissionId id, const std::string& agent = "ada") {
    return kind_thrown_by([&] { store.ask_confirmation(agent, id); });
  }
  bool ask_by_itself(SubmissionId id) { return store.confirm_if_on_front(id, "score", "speedup"); }
  std::vector<std::string> states() {
    std::vector<std::string> told;
    for (const Event& event : store.events_after(0, 1000)) {
      if (event.kind == "confirmation") told.push_back(event.data);
    }
    return told;
  }
};

TEST(Confirmations, AreJudgedByThemselvesUnderASeedThatIsToldAtTheEnd) {
  Confirmed test;
  const SubmissionId id = test.judged("one", passed(0.75));
  EXPECT_FALSE(test.store.confirmation(id));
  test.clock.advance(5);
  const AskedConfirmation asked = test.store.ask_confirmation("ada", id);
  EXPECT_TRUE(asked.is_new);
  EXPECT_EQ(asked.confirmation.state, ConfirmationState::kQueued);
  EXPECT_EQ(asked.confirmation.agent, "ada");
  EXPECT_EQ(asked.confirmation.tries, 1);
  EXPECT_GT(asked.confirmation.factor, 1);
  EXPECT_EQ(asked.confirmation.seed, "");
  EXPECT_FALSE(test.store.confirmation_evaluation(id));

  const Lease lease = test.claim();
  ASSERT_TRUE(lease.confirmation);
  EXPECT_EQ(lease.submission, id);
  EXPECT_EQ(lease.attempt, 1);
  EXPECT_FALSE(lease.trial);
  EXPECT_EQ(lease.confirmation->seed.size(), 64U);
  EXPECT_EQ(lease.confirmation->tries, 1);
  EXPECT_EQ(lease.confirmation->factor, asked.confirmation.factor);
  EXPECT_EQ(test.confirmation(id).state, ConfirmationState::kRunning);
  EXPECT_EQ(test.confirmation(id).seed, "") << "it is secret";
  EXPECT_EQ(test.store.confirmation_evaluation(id)->outcome, "");
  expect_whole(test);
  test.clock.advance(5);
  test.store.complete(test.store.renew(lease, kHour), passed(0.5));

  const Confirmation done = test.confirmation(id);
  EXPECT_EQ(done.state, ConfirmationState::kDone);
  EXPECT_EQ(done.status, Status::kPassed);
  EXPECT_FALSE(done.is_refutation());
  EXPECT_EQ(done.seed, lease.confirmation->seed);
  EXPECT_EQ(done.finished, *test.clock.time);
  ASSERT_EQ(done.metrics.size(), 2U);
  EXPECT_EQ(done.metrics[0].value, 0.5);
  EXPECT_EQ(test.store.confirmation_evaluation(id)->id, lease.evaluation);
  EXPECT_EQ(test.store.metrics(id).at(0).value, 0.75) << "the verdict is what it was";
  EXPECT_EQ(test.store.evaluations(id).size(), 1U);
  EXPECT_EQ(test.store.get(id)->status, Status::kPassed);
  EXPECT_EQ(test.store.list({}).submissions.at(0).confirmation->metrics.at(0).value, 0.5);
  EXPECT_EQ(test.states(), (std::vector<std::string>{R"({"state":"queued"})", R"({"state":"running"})",
                                                     R"({"state":"done","status":"passed"})"}));
  EXPECT_FALSE(test.store.claim("w", kHour));
  expect_whole(test);
}

TEST(Confirmations, ThatFailedCountInTheQuotaWheneverTheyAreAskedForAgain) {
  Confirmed test;
  test.store.create_agent("bob", Role::kAgent, 3);
  const SubmissionId id = test.judged("one", passed(), "bob");
  for (int again = 0; again < 2; ++again) {
    EXPECT_TRUE(test.store.ask_confirmation("bob", id).is_new);
    test.clock.advance(5);
    test.store.complete(test.claim(), ended(Status::kTimeout));
    EXPECT_EQ(test.store.quota_of("bob").used, 2 + again);
  }
  EXPECT_EQ(test.refusal(id, "bob"), ErrorKind::kQuota);
  expect_whole(test);
}

TEST(Confirmations, AreThereOnceForEachVerdict) {
  Confirmed test;
  const SubmissionId id = test.judged("one");
  const std::string seed = [&] {
    EXPECT_TRUE(test.store.ask_confirmation("ada", id).is_new);
    EXPECT_FALSE(test.store.ask_confirmation("ada", id).is_new) << "it waits";
    const Lease lease = test.claim();
    EXPECT_FALSE(test.store.ask_confirmation("ada", id).is_new) << "it runs";
    test.store.complete(lease, passed());
    return lease.confirmation->seed;
  }();
  const AskedConfirmation again = test.store.ask_confirmation("ada", id);
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.confirmation.seed, seed);
  EXPECT_FALSE(test.store.claim("w", kHour)) << "nothing was judged twice";
  EXPECT_EQ(test.store.quota_of("ada").used, 2) << "the submission and its confirmation";

  test.store.judge_again(id);
  EXPECT_EQ(test.refusal(id), ErrorKind::kConflict) << "it has no verdict at the moment";
  test.store.complete(test.claim(), passed());
  EXPECT_FALSE(test.store.confirmation(id)) << "that was of the verdict before";
  EXPECT_EQ(test.store.ask_confirmation("ada", id).confirmation.tries, 2);
  const Lease next = test.claim();
  EXPECT_NE(next.confirmation->seed, seed);
  test.store.complete(next, passed());
  expect_whole(test);
}

TEST(Confirmations, AreOfWhatPassedAlone) {
  Confirmed test;
  EXPECT_EQ(test.refusal(1), ErrorKind::kNotFound);
  const SubmissionId waiting = test.store.submit("ada", draft("waits")).id;
  EXPECT_EQ(test.refusal(waiting), ErrorKind::kConflict);
  const Lease lease = test.claim();
  EXPECT_EQ(test.refusal(waiting), ErrorKind::kConflict) << "it runs";
  test.store.complete(lease, passed());
  EXPECT_EQ(test.refusal(waiting, "nobody"), ErrorKind::kNotFound);
  for (const Status status : {Status::kBelowThreshold, Status::kRejectedStatic, Status::kIncorrectNumerical, Status::kTimeout}) {
    const SubmissionId id = test.judged(name_of(status), ended(status));
    try {
      test.store.ask_confirmation("ada", id);
      ADD_FAILURE() << name_of(status);
    } catch (const StoreError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConflict);
      EXPECT_NE(std::string(error.what()).find(name_of(status)), std::string::npos) << error.what();
    }
  }
  const SubmissionId cancelled = test.store.submit("ada", draft("cancelled")).id;
  test.store.cancel(cancelled);
  EXPECT_EQ(test.refusal(cancelled), ErrorKind::kConflict);
  EXPECT_FALSE(test.store.claim("w", kHour));
  expect_whole(test);
}

TEST(Confirmations, ThatCameToNoVerdictMayBeAskedForAgainByOtherQuestions) {
  Confirmed test(2);
  const SubmissionId id = test.judged("one");
  test.store.ask_confirmation("ada", id);
  const Lease first = test.claim();
  EXPECT_EQ(test.store.fail(first, "crashed"), Status::kQueued);
  EXPECT_EQ(test.confirmation(id).state, ConfirmationState::kQueued);
  const Lease second = test.claim();
  EXPECT_EQ(second.attempt, 2);
  EXPECT_EQ(second.confirmation->seed, first.confirmation->seed) << "nobody has seen anything of it";
  test.clock.advance(2 * kHour);
  test.store.expire_leases();
  const Confirmation failed = test.confirmation(id);
  EXPECT_EQ(failed.state, ConfirmationState::kFailed);
  EXPECT_FALSE(failed.status);
  EXPECT_EQ(failed.seed, "");
  EXPECT_FALSE(failed.is_refutation());
  EXPECT_NE(failed.hint.find("ask for it once more"), std::string::npos) << failed.hint;
  expect_whole(test);

  EXPECT_TRUE(test.store.ask_confirmation("ada", id).is_new);
  const Lease third = test.claim();
  EXPECT_NE(third.confirmation->seed, first.confirmation->seed);
  EXPECT_EQ(third.confirmation->tries, 1) << "nothing was learned by the first";
  EXPECT_EQ(third.attempt, 3);
  test.store.complete(third, ended(Status::kTimeout));
  EXPECT_EQ(test.confirmation(id).state, ConfirmationState::kFailed) << "time says nothing of the flow";
  EXPECT_TRUE(test.store.ask_confirmation("ada", id).is_new);
  test.store.release(test.claim());
  test.claim();
  EXPECT_EQ(test.store.release_leases(), std::vector<SubmissionId>{id});
  test.store.complete(test.claim(), passed());
  EXPECT_EQ(test.confirmation(id).state, ConfirmationState::kDone);
  EXPECT_FALSE(test.store.ask_confirmation("ada", id).is_new);
  expect_whole(test);
}

TEST(Confirmations, EndWhereTheirSubmissionIsJudgedAgain) {
  Confirmed test;
  const SubmissionId waits = test.judged("waits");
  const SubmissionId runs = test.judged("runs");
  test.store.ask_confirmation("ada", runs);
  const Lease lost = test.claim();
  test.store.ask_confirmation("ada", waits);
  test.store.judge_again(waits);
  test.store.judge_again(runs);
  EXPECT_EQ(test.confirmation(waits).state, ConfirmationState::kFailed);
  EXPECT_EQ(test.confirmation(runs).message, "the submission is judged again");
  try {
    test.store.check_lease(lost);
    ADD_FAILURE();
  } catch (const StoreError& error) {
    EXPECT_NE(std::string(error.what()).find("the confirmation of submission 2"), std::string::npos) << error.what();
    EXPECT_NE(error.hint().find("judged again"), std::string::npos) << error.hint();
  }
  EXPECT_EQ(kind_thrown_by([&] { test.store.complete(lost, passed()); }), ErrorKind::kConflict);
  expect_whole(test);
  for (int i = 0; i < 2; ++i) test.store.complete(test.claim(), passed());
  EXPECT_FALSE(test.store.claim("w", kHour));
  EXPECT_EQ(test.store.ask_confirmation("ada", waits).confirmation.tries, 3);
  expect_whole(test);
}

TEST(Confirmations, AreCountedByModelDeviceAndSuite) {
  Confirmed test;
  const auto tries_of = [&](SubmissionId id) { return test.store.ask_confirmation("ada", id).confirmation.tries; };
  const char* full = R"({"model":"mini","suite":"full"})";
  EXPECT_EQ(tries_of(test.judged("one")), 1);
  EXPECT_EQ(tries_of(test.judged("two")), 2);
  EXPECT_EQ(tries_of(test.judged("three", passed(), "ada", full)), 1);
  EXPECT_EQ(tries_of(test.judged("four", passed(), "ada", R"({"model":"mini","suite":"quick","seconds":5})")), 3)
      << "the same questions, whatever time they have";
  EXPECT_EQ(tries_of(test.judged("five", passed(), "ada", "{}")), 1);
  expect_whole(test);
}

TEST(Confirmations, CountAsNewSubmissionsDo) {
  Confirmed test;
  test.store.create_agent("bob", Role::kAgent, 3);
  const SubmissionId first = test.judged("one", measured(0.5, 1), "bob");
  const SubmissionId second = test.judged("two", measured(0.4, 2), "bob");
  EXPECT_TRUE(test.ask_by_itself(first));
  EXPECT_EQ(test.store.quota_of("bob").used, 2) << "by itself it costs nobody anything";
  test.store.ask_confirmation("bob", second);
  EXPECT_EQ(test.store.quota_of("bob").used, 3);
  EXPECT_FALSE(test.store.ask_confirmation("bob", second).is_new) << "nor does the same again";
  EXPECT_EQ(test.refusal(first, "bob"), ErrorKind::kQuota) << "to have it go before others does";
  EXPECT_EQ(kind_thrown_by([&] { test.store.submit("bob", draft("three")); }), ErrorKind::kQuota);
  EXPECT_FALSE(test.store.ask_confirmation("ada", first).is_new) << "that of the server, for an agent now";
  EXPECT_EQ(test.store.quota_of("ada").used, 1);
  EXPECT_FALSE(test.confirmation(first).is_automatic);
  EXPECT_EQ(test.confirmation(first).agent, "ada");
  test.clock.advance(25 * kHour);
  EXPECT_EQ(test.store.quota_of("bob").used, 0);
  expect_whole(test);
}

TEST(Confirmations, GoBehindSubmissionsAndThoseOfTheServerBehindAll) {
  Confirmed test;
  const SubmissionId front = test.judged("front", measured(0.9, 2));
  const SubmissionId asked = test.judged("asked", measured(0.5, 1));
  EXPECT_TRUE(test.ask_by_itself(front));
  test.store.ask_confirmation("ada", asked);
  const SubmissionId late = test.store.submit("ada", draft("late")).id;
  EXPECT_EQ(test.claim().submission, late);
  EXPECT_EQ(test.claim().submission, asked);
  EXPECT_EQ(test.claim().submission, front);
}

TEST(Confirmations, OfTheFrontAreAskedForByItself) {
  Confirmed test;
  const SubmissionId front = test.judged("front", measured(0.9, 2));
  EXPECT_FALSE(test.ask_by_itself(test.judged("beaten", measured(0.8, 1.5))));
  EXPECT_FALSE(test.ask_by_itself(test.judged("beaten in one", measured(0.9, 1.5))));
  EXPECT_FALSE(test.ask_by_itself(test.judged("unmeasured", passed())));
  EXPECT_EQ(kind_thrown_by([&] { test.ask_by_itself(test.judged("failed", ended(Status::kTimeout))); }), ErrorKind::kConflict);
  EXPECT_TRUE(test.ask_by_itself(test.judged("elsewhere", measured(0.1, 0.5), "ada", R"({"suite":"full"})"))) << "of its suite";
  EXPECT_TRUE(test.ask_by_itself(front));
  EXPECT_FALSE(test.ask_by_itself(front)) << "there is one";
  EXPECT_TRUE(test.confirmation(front).is_automatic);
  expect_whole(test);
}

TEST(Confirmations, OfASearchWaitOneAtATimeTheBestOfThem) {
  Confirmed test;
  test.store.create_agent("bob", Role::kAgent, 9);
  const SubmissionId weak = test.judged("weak", measured(0.5, 2));
  const SubmissionId fast = test.judged("fast", measured(0.4, 3));
  const SubmissionId good = test.judged("good", measured(0.7, 1.5));
  EXPECT_TRUE(test.ask_by_itself(weak));
  EXPECT_FALSE(test.ask_by_itself(fast)) << "another one waits that is better";
  EXPECT_TRUE(test.ask_by_itself(good)) << "in the place of the other";
  EXPECT_FALSE(test.store.confirmation(weak));
  EXPECT_EQ(test.confirmation(good).tries, 1) << "its try, too";
  EXPECT_TRUE(test.ask_by_itself(test.judged("bob's", measured(0.45, 2.5), "bob"))) << "agents have one each";
  expect_whole(test);

  const Lease running = test.claim();
  EXPECT_EQ(running.submission, good);
  EXPECT_TRUE(test.ask_by_itself(fast)) << "one runs, none waits";
  test.store.fail(running, "crashed");
  const SubmissionId best = test.judged("best", measured(0.9, 3.5));
  EXPECT_TRUE(test.ask_by_itself(best)) << "in the place of what nobody has seen";
  EXPECT_FALSE(test.store.confirmation(fast));
  EXPECT_EQ(test.confirmation(good).state, ConfirmationState::kQueued) << "that has been tried";
  expect_whole(test);
  for (int i = 0; i < 3; ++i) test.store.complete(test.claim(), measured(0.3, 1));
  EXPECT_FALSE(test.store.claim("w", kHour));
  expect_whole(test);
}

TEST(Confirmations, RankAndFrontGoByThemAndWhatTheyRefuteIsOnNeither) {
  Confirmed test;
  const SubmissionId lucky = test.judged("lucky", measured(0.9, 1, 0.01));
  const SubmissionId solid = test.judged("solid", measured(0.7, 1, 0.01));
  const SubmissionId false_one = test.judged("false", measured(0.95, 4, 0.01));
  const auto board = [&] {
    std::vector<std::pair<SubmissionId, bool>> rows;
    for (const Ranked& row : test.store.leaderboard({.metric = "score"})) rows.emplace_back(row.submission.id, row.is_confirmed);
    return rows;
  };
  using Rows = std::vector<std::pair<SubmissionId, bool>>;
  EXPECT_EQ(board(), (Rows{{false_one, false}, {lucky, false}, {solid, false}}));
  test.store.ask_confirmation("ada", lucky);
  EXPECT_EQ(board().at(1), std::pair(lucky, false)) << "not before it is done";
  Verdict without_speed = measured(0.6, 9, 0.05);
  without_speed.metrics.pop_back();
  test.store.complete(test.claim(), without_speed);
  test.store.ask_confirmation("ada", false_one);
  Verdict refuted = measured(0.1, 4);
  refuted.status = Status::kBelowThreshold;
  test.store.complete(test.claim(), refuted);
  EXPECT_TRUE(test.confirmation(false_one).is_refutation());
  EXPECT_EQ(test.confirmation(false_one).state, ConfirmationState::kDone);

  EXPECT_EQ(board(), (Rows{{solid, false}, {lucky, true}}));
  const Ranked row = test.store.leaderboard({.metric = "score"}).at(1);
  EXPECT_DOUBLE_EQ(row.metric.value, 0.6);
  EXPECT_DOUBLE_EQ(*row.metric.low, 0.55);
  EXPECT_EQ(row.submission.metrics.at(0).value, 0.9) << "the submission tells what was judged";
  EXPECT_EQ(test.store.count_ranked({.metric = "score"}), 2);
  EXPECT_FALSE(test.store.leaderboard({.metric = "speedup"}).at(0).is_confirmed) << "no speed was confirmed";
  const std::vector<FrontPoint> front = test.store.pareto_front("score", "speedup");
  ASSERT_EQ(front.size(), 1U);
  EXPECT_EQ(front[0].submission.id, solid);
  EXPECT_EQ(test.store.history({.metric = "score"}).size(), 3U) << "what was judged was judged";
  EXPECT_TRUE(test.ask_by_itself(solid)) << "nothing that stands beats it";
  expect_whole(test);
}

TEST(Confirmations, HaveSeedsOfTheirOwn) {
  Confirmed test;
  std::set<std::string> seeds;
  for (int i = 0; i < 50; ++i) {
    test.store.ask_confirmation("ada", test.judged(fmt::format("flow {}", i)));
    seeds.insert(test.claim().confirmation->seed);
  }
  EXPECT_EQ(seeds.size(), 50U);
}

TEST(Confirmations, TheDatabaseItselfRefusesContradictions) {
  Confirmed test;
  const SubmissionId id = test.judged("one");
  test.store.ask_confirmation("ada", id);
  Database database(test.folder.file("sluice.db"), Database::Mode::kReadWrite, 1000);
  const std::string insert =
      "INSERT INTO confirmations (submission, judged, agent, automatic, state, tries, factor, seed, created) VALUES ";
  for (const std::string& sql :
       {insert + "(1, 1, 1, 0, 'queued', 2, 4, zeroblob(32), 1)", insert + "(1, 9, 1, 0, 'queued', 2, 4, zeroblob(32), 1)",
        std::string("UPDATE confirmations SET state = 'lost'"), std::string("UPDATE confirmations SET state = 'done'"),
        std::string("UPDATE confirmations SET seed = zeroblob(16)"), std::string("UPDATE confirmations SET tries = 0"),
        std::string("UPDATE confirmations SET factor = 0"), std::string("UPDATE confirmations SET automatic = 2"),
        std::string("UPDATE confirmations SET evaluation = 1"), std::string("UPDATE confirmations SET finished = 1"),
        std::string("INSERT INTO queue (submission, confirmation, agent, priority, available) VALUES (1, 1, 1, 0, 0)"),
        std::string("INSERT INTO queue (submission, confirmation, agent, priority, available) VALUES (1, 9, 1, 0, 0)")}) {
    EXPECT_THROW(database.execute(sql.c_str()), StoreError) << sql;
  }
  expect_whole(test);
}

TEST(Confirmations, ThatContradictTheirJobsAreFound) {
  Confirmed test;
  const SubmissionId first = test.judged("one");
  const SubmissionId second = test.judged("two");
  test.store.ask_confirmation("ada", first);
  test.store.complete(test.claim(), passed());
  test.store.ask_confirmation("ada", second);
  Database database(test.folder.file("sluice.db"), Database::Mode::kReadWrite, 1000);
  const auto expect = [&](const std::string& sql, const std::string& problem) {
    database.execute(("SAVEPOINT before;" + sql).c_str());
    const std::vector<std::string> found = broken_invariants(database);
    EXPECT_NE(std::find(found.begin(), found.end(), "the confirmation of submission " + problem), found.end()) << sql;
    database.execute("ROLLBACK TO before; RELEASE before");
  };
  expect("DELETE FROM queue", "2 has not ended, and is not where its job in the queue is");
  expect("UPDATE confirmations SET state = 'running' WHERE submission = 2",
         "2 has not ended, and is not where its job in the queue is");
  expect("UPDATE confirmations SET state = 'failed', finished = 1 WHERE submission = 2", "2 has ended, and is in the queue");
  expect("UPDATE queue SET submission = 1", "2 is in the queue for another submission or agent");
  expect("UPDATE confirmations SET judged = 3 WHERE submission = 1",
         "1 is of a verdict of another submission, or of one that did not pass");
  expect("UPDATE confirmations SET evaluation = 1 WHERE submission = 1", "1 was ended by an evaluation that is not its own");
  expect("UPDATE confirmations SET state = 'failed' WHERE submission = 1", "1 ended as its evaluation does not say");
  expect("UPDATE evaluations SET submission = 2 WHERE confirmation = 1", "1 has evaluations of another submission");
  expect("UPDATE confirmations SET tries = 5 WHERE submission = 1",
         "2 is the last of confirmations that are not numbered one by one, of its model, device and suite");
  expect_whole(test);
}

}  // namespace
}  // namespace sluice::store::test
