#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "store/error.h"
#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

constexpr Time kLong = 3600LL * 1000000;

TEST(Queue, HigherPriorityGoesFirst) {
  TestStore test;
  Draft urgent = draft("urgent");
  urgent.priority = 5;
  const SubmissionId first = test.store.submit("ada", draft("first")).id;
  const SubmissionId second = test.store.submit("ada", urgent).id;
  EXPECT_EQ(test.store.claim("w", kLong)->submission, second);
  EXPECT_EQ(test.store.claim("w", kLong)->submission, first);
  EXPECT_FALSE(test.store.claim("w", kLong));
}

TEST(Queue, IsFairBetweenAgents) {
  TestStore test;
  test.store.create_agent("bob", Role::kAgent, 100);
  for (int i = 0; i < 20; ++i) test.store.submit("ada", draft(fmt::format("ada {}", i)));
  for (int i = 0; i < 3; ++i) test.store.submit("bob", draft(fmt::format("bob {}", i)));
  std::string order;
  for (int i = 0; i < 8; ++i) {  // one worker: nothing else runs when it claims
    const Lease lease = test.store.claim("w", kLong).value();
    order += test.store.get(lease.submission)->agent.front();
    test.store.complete(lease, passed());
  }
  EXPECT_EQ(order, "abababaa");
}

TEST(Queue, AReleasedLeaseWasNeverThere) {
  TestStore test;
  const SubmissionId id = test.store.submit("ada", draft("one")).id;
  for (int i = 0; i < 10; ++i) {
    const Lease lease = test.store.claim("w", kLong).value();
    EXPECT_EQ(lease.attempt, 1);
    test.store.release(lease);
    EXPECT_THROW(test.store.complete(lease, passed()), StoreError);
    EXPECT_THROW(test.store.release(lease), StoreError);
    EXPECT_EQ(test.store.get(id)->status, Status::kQueued);
    expect_whole(test);
  }
  test.store.complete(test.store.claim("w", kLong).value(), passed());
  EXPECT_EQ(test.store.evaluations(id).size(), 1U);
  expect_whole(test);
}

TEST(Queue, WhatIsReleasedForAWhileLetsOthersGoFirst) {
  TestStore test;
  const SubmissionId first = test.store.submit("ada", draft("first")).id;
  const SubmissionId second = test.store.submit("ada", draft("second")).id;
  test.store.release(test.store.claim("w", kLong).value(), 100);
  EXPECT_EQ(test.store.claim("w", kLong)->submission, second);
  EXPECT_FALSE(test.store.claim("w", kLong));
  test.clock.advance(101);
  EXPECT_EQ(test.store.claim("w", kLong)->submission, first);
}

TEST(Queue, SubmissionsWaitForWhatTheyAreFor) {
  TestStore test;
  const auto submitted = [&](const char* name, const char* settings) {
    Draft made = draft(name);
    made.settings = settings;
    return test.store.submit("ada", made).id;
  };
  const Equipment mine{"mini", "abc", "cpu"};
  submitted("other digest", R"({"model": "mini", "model_digest": "def", "device": "cpu"})");
  submitted("other device", R"({"model": "mini", "model_digest": "abc", "device": "cuda"})");
  submitted("other model of before there were digests", R"({"model": "qwen"})");
  const SubmissionId renamed = submitted("other name", R"({"model": "mini@abc", "model_digest": "abc", "device": "cpu"})");
  const SubmissionId open = submitted("open", R"({})");
  const SubmissionId old = submitted("old", R"({"model": "mini", "device": "cpu"})");
  EXPECT_EQ(test.store.count_waiting_for_others({mine}), 3);
  EXPECT_EQ(test.store.count_waiting_for_others({mine, {"mini", "def", "cpu"}}), 2);
  EXPECT_TRUE(test.store.is_suited(old, mine));
  EXPECT_FALSE(test.store.is_suited(1, mine));
  for (const SubmissionId id : {renamed, open, old}) EXPECT_EQ(test.store.claim("w", kLong, mine)->submission, id);
  EXPECT_FALSE(test.store.claim("w", kLong, mine));
  EXPECT_EQ(test.store.claim("w", kLong, {"mini", "def", "cpu"})->submission, 1);
  EXPECT_EQ(test.store.claim("w", kLong)->submission, 2) << "with anything";
}

TEST(Queue, ALostLeaseWritesNothing) {
  TestStore test;
  const SubmissionId id = test.store.submit("ada", draft("one")).id;
  const Lease lost = test.store.claim("slow", 10).value();
  test.clock.advance(10);
  EXPECT_EQ(test.store.expire_leases(), std::vector<SubmissionId>{id});
  EXPECT_THROW(test.store.complete(lost, passed()), StoreError);
  const Lease lease = test.store.claim("quick", 10).value();
  EXPECT_EQ(lease.attempt, 2);
  EXPECT_THROW(test.store.renew(lost, 10), StoreError);
  EXPECT_THROW(test.store.fail(lost, "x"), StoreError);
  EXPECT_THROW(test.store.complete(lost, passed()), StoreError);
  test.store.complete(lease, passed());
  EXPECT_THROW(test.store.complete(lease, passed()), StoreError);
  const auto evaluations = test.store.evaluations(id);
  EXPECT_EQ(evaluations.at(0).outcome, "expired");
  EXPECT_FALSE(evaluations.at(0).has_verdict);
  EXPECT_EQ(evaluations.at(1).worker, "quick");
}

TEST(Queue, RenewedLeasesDoNotExpire) {
  TestStore test;
  test.store.submit("ada", draft("one"));
  Lease lease = test.store.claim("w", 10).value();
  for (int i = 0; i < 5; ++i) {
    test.clock.advance(9);
    lease = test.store.renew(lease, 10);
    EXPECT_TRUE(test.store.expire_leases().empty());
  }
  test.clock.advance(10);
  EXPECT_EQ(test.store.expire_leases().size(), 1U);
}

TEST(Queue, FailuresAreTriedAgainUpToALimit) {
  TestStore test(3);
  const SubmissionId id = test.store.submit("ada", draft("one")).id;
  EXPECT_EQ(test.store.fail(test.store.claim("w", kLong).value(), "first", 100), Status::kQueued);
  EXPECT_FALSE(test.store.claim("w", kLong)) << "before the delay is over";
  test.clock.advance(100);
  EXPECT_EQ(test.store.fail(test.store.claim("w", kLong).value(), "second"), Status::kQueued);
  EXPECT_EQ(test.store.fail(test.store.claim("w", kLong).value(), "third"), Status::kRuntimeError);
  EXPECT_FALSE(test.store.claim("w", kLong));
  EXPECT_EQ(test.store.get(id)->status, Status::kRuntimeError);
  EXPECT_EQ(test.store.evaluations(id).at(0).verdict.message, "first");
  EXPECT_EQ(test.store.evaluations(id).at(2).verdict.message, "third");
  // What the hint says: the same script is judged anew, but not under the key of an earlier call.
  EXPECT_NE(test.store.evaluations(id).at(2).verdict.hint.find("new idempotency key, or none"), std::string::npos);
  EXPECT_EQ(test.store.submit("ada", draft("one")).id, id);
  EXPECT_EQ(test.store.get(id)->status, Status::kQueued);
  expect_whole(test);
}

TEST(Queue, CancelledSubmissionsEndAndCanBeJudgedAgain) {
  TestStore test;
  const SubmissionId waiting = test.store.submit("ada", draft("one")).id;
  EXPECT_TRUE(test.store.cancel(waiting));
  EXPECT_FALSE(test.store.cancel(waiting));
  EXPECT_FALSE(test.store.claim("w", kLong));
  const SubmissionId running = test.store.submit("ada", draft("two")).id;
  const Lease lease = test.store.claim("w", kLong).value();
  EXPECT_TRUE(test.store.cancel(running));
  EXPECT_THROW(test.store.renew(lease, 1), StoreError);
  test.store.judge_again(running);
  EXPECT_THROW(test.store.judge_again(running), StoreError);
  test.store.complete(test.store.claim("w", kLong).value(), passed());
  EXPECT_EQ(test.store.get(running)->status, Status::kPassed);
  EXPECT_EQ(test.store.evaluations(running).size(), 2U);
  EXPECT_THROW(test.store.cancel(99), StoreError);
  expect_whole(test);
}

/// Submits its own flows, and judges whatever comes, until all of everybody are done.
void submit_and_judge(const std::string& path, const std::string& name, int flows, int total) {
  Store store(path);
  for (int i = 0; i < flows; ++i) store.submit("ada", draft(fmt::format("{} {}", name, i)));
  const auto all_done = [&] {
    int done = 0;
    for (const Event& event : store.events_after(0, 1000)) done += event.kind == "finished" ? 1 : 0;
    return done == total;
  };
  while (!all_done()) {
    const auto lease = store.claim(name, kLong);
    if (lease) {
      store.complete(*lease, passed());
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
}

void expect_each_judged_once(TestStore& test, size_t count) {
  const auto page = test.store.list({}, "", Limits::kPage);
  EXPECT_EQ(page.submissions.size(), count);
  for (const SubmissionSummary& summary : page.submissions) {
    EXPECT_EQ(summary.status, Status::kPassed);
    EXPECT_EQ(test.store.evaluations(summary.id).size(), 1U);
  }
  expect_whole(test);
}

TEST(Queue, ThreadsShareAFile) {
  TestStore test;
  constexpr int kThreads = 4, kFlows = 15;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back(submit_and_judge, test.folder.file("sluice.db"), fmt::format("thread {}", i), kFlows, kThreads * kFlows);
  }
  for (std::thread& thread : threads) thread.join();
  expect_each_judged_once(test, kThreads * kFlows);
}

TEST(Queue, ProcessesShareAFile) {
  TestStore test;
  constexpr int kProcesses = 3, kFlows = 15;
  const auto work = [&](int i) {
    submit_and_judge(test.folder.file("sluice.db"), fmt::format("process {}", i), kFlows, kProcesses * kFlows);
    return 0;
  };
  EXPECT_EQ(in_processes(kProcesses, work), std::vector<int>(kProcesses, 0));
  expect_each_judged_once(test, kProcesses * kFlows);
}

}  // namespace
}  // namespace sluice::store::test
