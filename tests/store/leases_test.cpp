#include <gtest/gtest.h>

#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

constexpr Time kLong = 1'000'000'000;

TEST(Leases, OfAServerThatWasKilledAreNoTries) {
  TestStore test;
  const SubmissionId id = test.store.submit("ada", draft("one")).id;
  for (int i = 0; i < 5; ++i) {
    test.store.claim("worker", kLong).value();
    EXPECT_EQ(test.store.release_leases(), std::vector<SubmissionId>{id});
    EXPECT_EQ(test.store.get(id)->status, Status::kQueued);
  }
  EXPECT_TRUE(test.store.release_leases().empty());
  EXPECT_EQ(test.store.evaluations(id).size(), 5U);
  EXPECT_EQ(test.store.evaluations(id).back().outcome, "expired");
  EXPECT_EQ(test.store.fail(test.store.claim("worker", kLong).value(), "crashed"), Status::kQueued) << "the first try";
  test.store.complete(test.store.claim("worker", kLong).value(), passed());
  EXPECT_EQ(test.store.get(id)->status, Status::kPassed);
}

TEST(Leases, OfLivingWorkersOutlastTheirTime) {
  TestStore test;
  const SubmissionId own = test.store.submit("ada", draft("own")).id;
  const SubmissionId other = test.store.submit("ada", draft("other")).id;
  const Lease lease = test.store.claim("7-0", 10).value();
  test.store.claim("77-0", 10).value();
  test.clock.advance(11);
  EXPECT_EQ(test.store.expire_leases([](const std::string& worker) { return worker == "7-0"; }),
            std::vector<SubmissionId>{other});
  test.store.check_lease(lease);
  EXPECT_EQ(test.store.expire_leases(), std::vector<SubmissionId>{own});
  EXPECT_EQ(kind_thrown_by([&] { test.store.check_lease(lease); }), ErrorKind::kConflict);
}

TEST(Leases, NothingFollowsTheEnd) {
  TestStore test;
  const SubmissionId id = test.store.submit("ada", draft("one")).id;
  const Lease lease = test.store.claim("worker", kLong).value();
  test.store.append_event("progress", lease, R"({"share": 0.5})");
  EXPECT_EQ(test.store.events_after(test.store.last_event() - 1, 1).at(0).submission, id);
  test.store.cancel(id);
  const int64_t last = test.store.last_event();
  EXPECT_EQ(kind_thrown_by([&] { test.store.append_event("progress", lease, "{}"); }), ErrorKind::kConflict);
  EXPECT_EQ(test.store.last_event(), last);
}

TEST(Leases, AClockThatIsSetBackStopsNothing) {
  TestStore test;
  test.store.submit("ada", draft("one"));
  test.store.fail(test.store.claim("worker", kLong).value(), "crashed", 1'000'000);
  EXPECT_FALSE(test.store.claim("worker", kLong)) << "it waits a second";
  test.clock.advance(-3'600'000'000);
  EXPECT_TRUE(test.store.claim("worker", kLong));
}

TEST(Leases, TheLastFailureKeepsArtifacts) {
  TestStore test(2);
  const SubmissionId id = test.store.submit("ada", draft("one")).id;
  const std::vector<Artifact> found = {{"graph.json", "application/json", "{}", 0}};
  test.store.fail(test.store.claim("worker", kLong).value(), "crashed", 0, found);
  EXPECT_FALSE(test.store.artifact(id, "graph.json"));
  test.store.fail(test.store.claim("worker", kLong).value(), "crashed", 0, found);
  EXPECT_EQ(test.store.artifact(id, "graph.json")->bytes, "{}");
}

}  // namespace
}  // namespace sluice::store::test
