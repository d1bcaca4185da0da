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
