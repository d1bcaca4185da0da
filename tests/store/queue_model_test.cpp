#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "store/error.h"
#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

/// What the queue should do, in the plainest words.
struct Model {
  struct Job {
    Status status = Status::kQueued;
    int tries = 0;
    int64_t priority = 0;
    std::optional<Lease> lease;
    int verdicts = 0;
  };
  std::map<SubmissionId, Job> jobs;

  int64_t highest_waiting() const {
    int64_t highest = INT64_MIN;
    for (const auto& [id, job] : jobs) {
      if (job.status == Status::kQueued) highest = std::max(highest, job.priority);
    }
    return highest;
  }
  void failed(SubmissionId id, int limit) {
    Job& job = jobs.at(id);
    job.lease.reset();
    job.status = ++job.tries >= limit ? Status::kRuntimeError : Status::kQueued;
    if (is_final(job.status)) ++job.verdicts;
  }
};

class QueueAgainstModel : public ::testing::TestWithParam<unsigned> {
 protected:
  size_t below(size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random_); }

  void submit() {
    Draft given = draft(fmt::format("flow {}", count_++));
    given.priority = static_cast<int64_t>(below(3));
    model_.jobs[test_.store.submit("ada", given).id].priority = given.priority;
  }
  void claim() {
    const auto lease = test_.store.claim("w", 50);
    const int64_t highest = model_.highest_waiting();
    ASSERT_EQ(lease.has_value(), highest != INT64_MIN);
    if (!lease) return;
    Model::Job& job = model_.jobs.at(lease->submission);
    ASSERT_EQ(job.status, Status::kQueued);
    ASSERT_EQ(job.priority, highest);
    job.status = Status::kRunning;
    job.lease = lease;
    leases_.push_back(*lease);
  }
  /// With any lease that was ever given, most of them lost.
  void use_lease() {
    if (leases_.empty()) return;
    const Lease lease = leases_[below(leases_.size())];
    Model::Job& job = model_.jobs.at(lease.submission);
    const bool held = job.lease && job.lease->evaluation == lease.evaluation;
    try {
      switch (below(3)) {
        case 0:
          job.lease = test_.store.renew(lease, 50);
          break;
        case 1:
          test_.store.complete(lease, passed());
          job.status = Status::kPassed;
          job.lease.reset();
          ++job.verdicts;
          break;
        default:
          test_.store.fail(lease, "failed");
          model_.failed(lease.submission, test_.tries);
      }
      ASSERT_TRUE(held);
    } catch (const StoreError& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kConflict) << error.what();
      ASSERT_FALSE(held);
    }
  }
  void cancel() {
    if (model_.jobs.empty()) return;
    const auto id = static_cast<SubmissionId>(1 + below(model_.jobs.size()));
    Model::Job& job = model_.jobs.at(id);
    ASSERT_EQ(test_.store.cancel(id), !is_final(job.status));
    if (is_final(job.status)) return;
    if (job.lease) ++job.verdicts;
    job.status = Status::kCancelled;
    job.lease.reset();
  }
  void expire() {
    test_.clock.advance(static_cast<Time>(below(40)));
    std::vector<SubmissionId> expected;
    for (const auto& [id, job] : model_.jobs) {
      if (job.lease && job.lease->expiry <= *test_.clock.time) expected.push_back(id);
    }
    ASSERT_EQ(test_.store.expire_leases(), expected);
    for (const SubmissionId id : expected) model_.failed(id, test_.tries);
  }
  void step() {
    switch (below(8)) {
      case 0:
      case 1:
        return submit();
      case 2:
      case 3:
        return claim();
      case 4:
      case 5:
        return use_lease();
      case 6:
        return expire();
      default:
        if (below(4) == 0) cancel();
    }
  }
  void expect_agreement() {
    for (const auto& [id, job] : model_.jobs) {
      ASSERT_EQ(test_.store.get(id)->status, job.status) << id;
      int verdicts = 0;
      for (const Evaluation& evaluation : test_.store.evaluations(id)) verdicts += evaluation.has_verdict ? 1 : 0;
      ASSERT_EQ(verdicts, job.verdicts) << id;
      ASSERT_LE(verdicts, 1) << id;
    }
    expect_whole(test_);
  }

  std::mt19937 random_{GetParam()};
  TestStore test_{2};
  Model model_;
  std::vector<Lease> leases_;
  int count_ = 0;
};

TEST_P(QueueAgainstModel, NothingIsLostAndNothingJudgedTwice) {
  for (int i = 0; i < 400 && !HasFatalFailure(); ++i) step();
  expect_agreement();
}

INSTANTIATE_TEST_SUITE_P(Seeds, QueueAgainstModel, ::testing::Range(1U, 6U));

}  // namespace
}  // namespace sluice::store::test
