#include <gtest/gtest.h>

#include "store/error.h"
#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

constexpr Time kHour = 3600LL * 1000000;

TEST(Evaluations, KeepAllThatAWorkerFound) {
  TestStore test;
  const SubmissionId id = test.store.submit("ada", draft("one")).id;
  const Lease lease = test.store.claim("worker 1", kHour).value();
  EXPECT_EQ(test.store.evaluations(id).at(0).verdict.seed, "");
  Verdict verdict = passed(0.75, 3);
  verdict.status = Status::kBelowThreshold;
  verdict.message = "needle below 0.9";
  verdict.hint = "read more pages";
  verdict.seed = "5eed";
  verdict.stages = {{"verify", StageStatus::kPassed, 0.5, "", "{}"},
                    {"needle", StageStatus::kFailed, 2, "too low", R"({"mass":[0.5]})"},
                    {"speed", StageStatus::kSkipped, 0, "", "{}"}};
  verdict.metrics.push_back({"accuracy", "needle", 4096, 0.5, std::nullopt, std::nullopt, ""});
  verdict.artifacts = {{"log", "text/plain", std::string(Limits::kArtifactBytes + 10, 'x'), 0}};
  test.clock.advance(5);
  test.store.complete(lease, verdict);

  const Evaluation kept = test.store.evaluations(id).at(0);
  EXPECT_EQ(kept.outcome, "judged");
  EXPECT_EQ(kept.worker, "worker 1");
  EXPECT_EQ(*kept.finished, kept.started + 5);
  EXPECT_EQ(kept.verdict.status, Status::kBelowThreshold);
  EXPECT_EQ(kept.verdict.seed, "5eed");
  EXPECT_EQ(kept.verdict.hint, "read more pages");
  ASSERT_EQ(kept.verdict.stages.size(), 3U);
  EXPECT_EQ(kept.verdict.stages[1].status, StageStatus::kFailed);
  EXPECT_EQ(kept.verdict.stages[1].details, R"({"mass":[0.5]})");
  ASSERT_EQ(kept.verdict.metrics.size(), 3U);
  EXPECT_EQ(kept.verdict.metrics[1].length, 4096);
  EXPECT_FALSE(kept.verdict.metrics[1].low);
  EXPECT_DOUBLE_EQ(*kept.verdict.metrics[0].high, 0.85);
  EXPECT_TRUE(kept.verdict.artifacts[0].bytes.empty()) << "long, and seldom wanted";
  EXPECT_EQ(test.store.artifact(id, "log")->bytes.size(), Limits::kArtifactBytes);
  EXPECT_FALSE(test.store.artifact(id, "other"));
  EXPECT_EQ(kept.verdict.artifacts[0].size, static_cast<int64_t>(Limits::kArtifactBytes) + 10);
  EXPECT_EQ(test.store.get(id)->judged, kept.id);
}

TEST(Evaluations, WrongResultsAreRefusedAndTheLeaseStays) {
  TestStore test;
  test.store.submit("ada", draft("one"));
  const Lease lease = test.store.claim("worker", kHour).value();
  Verdict twice = passed();
  twice.metrics.push_back(twice.metrics.front());
  EXPECT_EQ(kind_thrown_by([&] { test.store.complete(lease, twice); }), ErrorKind::kInvalid);
  EXPECT_EQ(kind_thrown_by([&] { test.store.complete(lease, passed(0.0 / 0.0)); }), ErrorKind::kInvalid);
  Verdict unfinished;
  unfinished.status = Status::kRunning;
  EXPECT_EQ(kind_thrown_by([&] { test.store.complete(lease, unfinished); }), ErrorKind::kInvalid);
  test.store.complete(lease, passed());
}

}  // namespace
}  // namespace sluice::store::test
