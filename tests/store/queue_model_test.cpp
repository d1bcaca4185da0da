#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "store/database/sqlite.h"
#include "store/error.h"
#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

constexpr int kSuspicious = 10;  // attempts after which a server that ends meanwhile counts as a try

/// What the queue should do, in the plainest words.
struct Model {
  struct Job {
    Status status = Status::kQueued;
    int tries = 0;
    int attempts = 0;
    int64_t priority = 0;
    std::optional<Lease> lease;
    int verdicts = 0;
  };
  /// A submission, or with a seed a trial of it, each with another one; a confirmation has -1 less its row for that.
  using Key = std::pair<SubmissionId, std::optional<int64_t>>;
  static Key key_of(const Lease& lease) {
    return {lease.submission, lease.confirmation ? std::optional(-1 - lease.confirmation->id) : lease.seed};
  }
  std::map<Key, Job> jobs;

  int64_t highest_waiting() const {
    int64_t highest = INT64_MIN;
    for (const auto& [key, job] : jobs) {
      if (job.status == Status::kQueued) highest = std::max(highest, job.priority);
    }
    return highest;
  }
  void failed(const Key& key, int limit) {
    Job& job = jobs.at(key);
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
    const SubmissionId id = test_.store.submit("ada", given).id;
    model_.jobs[{id, {}}].priority = given.priority;
    test_.store.add_trials("ada", study_, {{.submission = id}});
    numbers_[{id, {}}] = trials_++;
  }
  /// A trial that is judged by itself, of any submission.
  void try_again() {
    if (count_ == 0) return;
    const auto id = static_cast<SubmissionId>(1 + below(static_cast<size_t>(count_)));
    const int64_t seed = trials_;
    test_.store.add_trials("ada", study_, {{.submission = id, .flow = {}, .parameters = "{}", .seed = seed}});
    model_.jobs[{id, seed}] = {};
    numbers_[{id, seed}] = trials_++;
  }
  void claim() {
    const auto lease = test_.store.claim("w", 50);
    const int64_t highest = model_.highest_waiting();
    ASSERT_EQ(lease.has_value(), highest != INT64_MIN);
    if (!lease) return;
    Model::Job& job = model_.jobs.at(Model::key_of(*lease));
    ASSERT_EQ(job.status, Status::kQueued);
    ASSERT_EQ(job.priority, highest);
    job.status = Status::kRunning;
    job.lease = lease;
    ASSERT_EQ(lease->attempt, ++job.attempts);
    leases_.push_back(*lease);
  }
  /// With any lease that was ever given, most of them lost.
  void use_lease() {
    if (leases_.empty()) return;
    const Lease lease = leases_[below(leases_.size())];
    const Model::Key key = Model::key_of(lease);
    Model::Job& job = model_.jobs.at(key);
    const bool held = job.lease && job.lease->evaluation == lease.evaluation;
    try {
      switch (below(4)) {
        case 0:
          job.lease = test_.store.renew(lease, 50);
          break;
        case 1:
          test_.store.complete(lease, passed());
          job.status = Status::kPassed;
          job.lease.reset();
          ++job.verdicts;
          if (!key.second) confirmations_.erase(key.first);  // that was of the verdict before
          break;
        case 2:
          test_.store.release(lease);
          job.status = Status::kQueued;
          job.lease.reset();
          --job.attempts;
          break;
        default:
          test_.store.fail(lease, "failed");
          model_.failed(key, test_.tries);
      }
      ASSERT_TRUE(held);
    } catch (const StoreError& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kConflict) << error.what();
      ASSERT_FALSE(held);
    }
  }
  void cancel() {
    if (model_.jobs.empty()) return;
    const auto& [key, job] = *std::next(model_.jobs.begin(), static_cast<ptrdiff_t>(below(model_.jobs.size())));
    if (key.second) return *key.second < 0 ? void() : give_up(key);
    ASSERT_EQ(test_.store.cancel(key.first), !is_final(job.status));
    end(key);
  }
  /// A trial is told its end.
  void give_up(const Model::Key& key) {
    const Status status = model_.jobs.at(key).status;
    const bool is_open = !is_final(status);
    try {
      ASSERT_EQ(test_.store.tell(study_, numbers_.at(key), {TrialState::kFailed, {}}), is_open);
      ASSERT_TRUE(is_open || status == Status::kCancelled) << "the same may be told again";
    } catch (const StoreError& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kConflict) << error.what();
      ASSERT_FALSE(is_open);
    }
    end(key);
  }
  void end(const Model::Key& key) {
    Model::Job& job = model_.jobs.at(key);
    if (is_final(job.status)) return;
    if (job.lease) ++job.verdicts;
    job.status = Status::kCancelled;
    job.lease.reset();
  }
  /// A submission is to be confirmed.
  void confirm() {
    if (count_ == 0) return;
    const auto id = static_cast<SubmissionId>(1 + below(static_cast<size_t>(count_)));
    if (model_.jobs.at({id, {}}).status != Status::kPassed) {
      ASSERT_EQ(kind_thrown_by([&] { test_.store.ask_confirmation("ada", id); }), ErrorKind::kConflict);
      return;
    }
    const auto known = confirmations_.find(id);
    const bool has_failed = known != confirmations_.end() && model_.jobs.at(known->second).status == Status::kRuntimeError;
    const AskedConfirmation asked = test_.store.ask_confirmation("ada", id);
    ASSERT_EQ(asked.is_new, known == confirmations_.end() || has_failed);
    const Model::Key key{id, -1 - asked.confirmation.id};
    ASSERT_EQ(known == confirmations_.end() ? key : known->second, key);
    confirmations_[id] = key;
    Model::Job& job = model_.jobs[key];
    if (!has_failed) return;
    job.status = Status::kQueued;
    job.tries = 0;
  }
  /// A submission is handed in once more, or judged again.
  void again() {
    if (count_ == 0) return;
    const auto id = static_cast<SubmissionId>(1 + below(static_cast<size_t>(count_)));
    Model::Job& job = model_.jobs.at({id, {}});
    int64_t priority = 0;
    if (below(2) == 0) {
      Draft given = draft(fmt::format("flow {}", id - 1));
      given.priority = priority = static_cast<int64_t>(below(3));
      const Submitted submitted = test_.store.submit("ada", given);
      ASSERT_EQ(submitted.id, id);
      ASSERT_EQ(submitted.is_new, job.status == Status::kRuntimeError || job.status == Status::kCancelled);
      if (!submitted.is_new) return;
    } else if (is_final(job.status)) {
      test_.store.judge_again(id);
    } else {
      ASSERT_EQ(kind_thrown_by([&] { test_.store.judge_again(id); }), ErrorKind::kConflict);
      return;
    }
    job.status = Status::kQueued;
    job.tries = 0;
    job.priority = priority;
    if (const auto known = confirmations_.find(id); known != confirmations_.end()) end(known->second);
    test_.store.add_trials("ada", study_, {{.submission = id}});  // the one before has ended, and stays as it is
    numbers_[{id, {}}] = trials_++;
  }
  /// The server was killed, and another one begins.
  void restart() {
    size_t released = 0;
    for (auto& [key, job] : model_.jobs) {
      if (!job.lease) continue;
      ++released;
      if (job.attempts >= kSuspicious) {
        model_.failed(key, test_.tries);
        continue;
      }
      job.lease.reset();
      job.status = Status::kQueued;
    }
    ASSERT_EQ(test_.store.release_leases().size(), released);
  }
  void expire() {
    test_.clock.advance(static_cast<Time>(below(40)));
    std::vector<Model::Key> expired;
    std::vector<SubmissionId> expected;
    for (const auto& [key, job] : model_.jobs) {
      if (!job.lease || job.lease->expiry > *test_.clock.time) continue;
      expired.push_back(key);
      expected.push_back(key.first);
    }
    ASSERT_EQ(test_.store.expire_leases(), expected);
    for (const Model::Key& key : expired) model_.failed(key, test_.tries);
  }
  void step() {
    switch (below(9)) {
      case 0:
        return submit();
      case 1:
        return below(3) == 0 ? submit() : below(2) == 0 ? try_again() : confirm();
      case 2:
      case 3:
        return claim();
      case 4:
      case 5:
        return use_lease();
      case 6:
        return expire();
      case 7:
        return below(8) == 0 ? restart() : again();
      default:
        if (below(4) == 0) cancel();
    }
  }
  void expect_confirmation(const Model::Key& key, const Model::Job& job) {
    Database database(test_.folder.file("sluice.db"), Database::Mode::kReadWrite, 1000);
    Query query(database,
                "SELECT c.state, (SELECT COUNT(*) FROM evaluations e WHERE e.confirmation = c.id AND e.verdict IS NOT NULL) "
                "FROM confirmations c WHERE c.id = ? AND c.submission = ?",
                -1 - *key.second, key.first);
    ASSERT_TRUE(query.step());
    const bool waits = job.status == Status::kQueued || job.status == Status::kRunning;
    ASSERT_EQ(query.text(0), waits ? name_of(job.status) : job.status == Status::kPassed ? "done" : "failed");
    ASSERT_EQ(query.integer(1), job.verdicts);
  }
  int64_t verdicts_of(const Model::Key& key) {
    Database database(test_.folder.file("sluice.db"), Database::Mode::kReadWrite, 1000);
    Query query(
        database,
        "SELECT COUNT(*) FROM evaluations WHERE submission = ? AND verdict IS NOT NULL AND confirmation IS NULL AND trial IS "
        "(SELECT id FROM trials WHERE study = ? AND number = ? AND seed IS NOT NULL)",
        key.first, study_, numbers_.at(key));
    query.step();
    return query.integer(0);
  }
  void expect_agreement() {
    for (const auto& [key, job] : model_.jobs) {
      if (key.second && *key.second < 0) {
        expect_confirmation(key, job);
        continue;
      }
      const Trial trial = test_.store.trial(study_, numbers_.at(key)).value();
      ASSERT_EQ(trial.state, trial_state_of(job.status)) << trial.number;
      ASSERT_EQ(trial.seed, key.second);
      ASSERT_EQ(verdicts_of(key), job.verdicts) << key.first;
      if (!key.second) {
        ASSERT_EQ(test_.store.get(key.first)->status, job.status) << key.first;
      }
    }
    expect_whole(test_);
  }

  std::mt19937 random_{GetParam()};
  TestStore test_{2};
  StudyId study_ = test_.store.create_study("ada", {"study", "", "{}"}).id;
  Model model_;
  std::map<Model::Key, int64_t> numbers_;             // of trials: of a submission the one that follows it
  std::map<SubmissionId, Model::Key> confirmations_;  // of their last verdicts
  std::vector<Lease> leases_;
  int count_ = 0;
  int64_t trials_ = 0;
};

TEST_P(QueueAgainstModel, NothingIsLostAndNothingJudgedTwice) {
  for (int i = 0; i < 400 && !HasFatalFailure(); ++i) step();
  expect_agreement();
}

INSTANTIATE_TEST_SUITE_P(Seeds, QueueAgainstModel, ::testing::Range(1U, 6U));

}  // namespace
}  // namespace sluice::store::test
