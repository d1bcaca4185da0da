// The queue and its leases. A lease is the evaluation's id in the queue's row: who holds another one, or none, has lost it.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "store/database/confirmations.h"
#include "store/database/jobs.h"
#include "store/database/results.h"
#include "store/database/sqlite.h"
#include "store/database/trials.h"
#include "store/error.h"
#include "store/store.h"

namespace sluice::store {

namespace {

constexpr int64_t kSuspicious = 10;          // attempts after which a server that ends meanwhile may have the flow to blame
constexpr const char* kExpired = "expired";  // outcome of an attempt whose lease was taken away

struct HeldJob {
  Job job;
  EvaluationId evaluation = 0;
};

/// Jobs whose leases end at `time` or before, by submission, but for those of workers that live.
std::vector<HeldJob> leases_until(Database& database, Time time, const std::function<bool(const std::string&)>& is_alive = {}) {
  std::vector<HeldJob> leases;
  Query query(database,
              fmt::format("SELECT {}, q.evaluation, q.lease_owner FROM queue q WHERE q.lease_expiry <= ? "
                          "ORDER BY q.submission, coalesce(q.trial, 0), coalesce(q.confirmation, 0)",
                          kJobColumns),
              time);
  while (query.step()) {
    if (is_alive && is_alive(query.text(kJobWidth + 1))) continue;
    leases.push_back({read_job(query), query.integer(kJobWidth)});
  }
  return leases;
}

/// Attempts that failed.
int64_t tries_of(Database& database, const Job& job) {
  Query query(database, "SELECT tries FROM queue WHERE id = ?", job.id);
  query.step();
  return query.integer(0);
}

/// For whoever reads that all attempts failed.
std::string hint_after(int64_t tries, const Job& job) {
  if (job.trial) {
    return fmt::format("{} attempts failed. Change the flow; or, if the server was at fault, add the trial once more", tries);
  }
  if (job.confirmation) return fmt::format("{} attempts failed: ask for it once more", tries);
  return fmt::format(
      "{} attempts failed; the evaluations tell what each of them came to. Change the flow; or, if the server was at fault, "
      "hand it in again under a new idempotency key, or none, to have it judged anew",
      tries);
}

std::string finished_event(Status status) { return nlohmann::json{{"status", name_of(status)}}.dump(); }

}  // namespace

void Store::check_lease(const Lease& lease) { required_job(*database_, lease); }

Lease Store::renew(const Lease& lease, Time duration) {
  Lease renewed = lease;
  renewed.expiry = options_.clock() + duration;
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  const Job job = required_job(*database_, lease);
  Query(*database_, "UPDATE queue SET lease_expiry = ? WHERE id = ?", renewed.expiry, job.id).run();
  transaction.commit();
  return renewed;
}

void Store::complete(const Lease& lease, const Verdict& verdict) {
  if (!is_final(verdict.status) || verdict.status == Status::kCancelled) {
    throw StoreError(ErrorKind::kInvalid, fmt::format("\"{}\" is no verdict of a worker", name_of(verdict.status)));
  }
  check_results(verdict);
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  const Job job = required_job(*database_, lease);
  write_results(*database_, lease.evaluation, verdict);
  close_evaluation(lease.evaluation, "judged", verdict, true);
  finish(job, lease.evaluation, verdict.status);
  transaction.commit();
}

void Store::release(const Lease& lease, Time delay) {
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  put_back(required_job(*database_, lease), lease.evaluation, delay);
  transaction.commit();
}

void Store::put_back(const Job& job, EvaluationId evaluation, Time delay) {
  back_to_queue(job, "released", delay, false);
  Query(*database_, "DELETE FROM evaluations WHERE id = ?", evaluation).run();
}

Status Store::fail(const Lease& lease, const std::string& reason, Time delay, const std::vector<Artifact>& artifacts) {
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  const Job job = required_job(*database_, lease);
  const Status status = retry_or_end(job, lease.evaluation, "failed", reason, delay, artifacts);
  transaction.commit();
  return status;
}

std::vector<SubmissionId> Store::expire_leases(const std::function<bool(const std::string&)>& is_alive) {
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  std::vector<SubmissionId> submissions;
  for (const auto& [job, evaluation] : leases_until(*database_, options_.clock(), is_alive)) {
    retry_or_end(job, evaluation, kExpired, "the worker was not heard of again", 0);
    submissions.push_back(job.submission);
  }
  transaction.commit();
  return submissions;
}

std::vector<SubmissionId> Store::release_leases() {
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  std::vector<SubmissionId> submissions;
  for (const auto& [job, evaluation] : leases_until(*database_, std::numeric_limits<Time>::max())) {
    submissions.push_back(job.submission);
    const std::string reason = "the server ended meanwhile";
    if (attempts_of(*database_, job) >= kSuspicious) {
      retry_or_end(job, evaluation, kExpired, reason, 0);
      continue;
    }
    Verdict verdict;
    verdict.message = reason;
    close_evaluation(evaluation, kExpired, verdict, false);
    back_to_queue(job, kExpired, 0, false);
  }
  transaction.commit();
  return submissions;
}

Status Store::retry_or_end(const Job& job, EvaluationId evaluation, const std::string& outcome, const std::string& reason,
                           Time delay, const std::vector<Artifact>& artifacts) {
  const int64_t tries = tries_of(*database_, job) + 1;
  const bool last = tries >= options_.tries;
  Verdict verdict;
  verdict.status = Status::kRuntimeError;
  verdict.message = reason;
  if (last) {
    verdict.hint = hint_after(tries, job);
    verdict.artifacts = artifacts;
    check_results(verdict);
    write_results(*database_, evaluation, verdict);
  }
  close_evaluation(evaluation, outcome, verdict, last);
  if (last) {
    finish(job, evaluation, verdict.status);
    return verdict.status;
  }
  back_to_queue(job, outcome, delay, true);
  return Status::kQueued;
}

/// `counts`: the attempt that ended was a try.
void Store::back_to_queue(const Job& job, const std::string& outcome, Time delay, bool counts) {
  const Time time = options_.clock();
  Query(*database_,
        "UPDATE queue SET tries = tries + ?, available = ?, evaluation = NULL, lease_owner = NULL, lease_expiry = NULL "
        "WHERE id = ?",
        static_cast<int>(counts), time + std::min(delay, kLongestDelay), job.id)
      .run();
  if (job.trial) return set_trial(*database_, *job.trial, TrialState::kWaiting, time);
  if (job.confirmation) {
    set_confirmation(*database_, *job.confirmation, ConfirmationState::kQueued);
    append("confirmation", job.submission, confirmation_event(ConfirmationState::kQueued));
    return;
  }
  set_status(*database_, job.submission, Status::kQueued, time);
  append("retried", job.submission, nlohmann::json{{"tries", tries_of(*database_, job)}, {"outcome", outcome}}.dump());
}

void Store::close_evaluation(EvaluationId evaluation, const std::string& outcome, const Verdict& verdict, bool final) {
  std::optional<std::string> status;
  if (final) status = name_of(verdict.status);
  Query(*database_, "UPDATE evaluations SET finished = ?, outcome = ?, verdict = ?, message = ?, hint = ?, seed = ? WHERE id = ?",
        options_.clock(), outcome, status, verdict.message, verdict.hint, verdict.seed, evaluation)
      .run();
}

void Store::finish(const Job& job, EvaluationId evaluation, Status status) {
  const Time time = options_.clock();
  Query(*database_, "DELETE FROM queue WHERE id = ?", job.id).run();
  if (job.trial) return set_trial(*database_, *job.trial, trial_state_of(status), time, evaluation);
  if (job.confirmation) {
    const ConfirmationState state = confirmation_state_of(status);
    set_confirmation(*database_, *job.confirmation, state, time, evaluation);
    append("confirmation", job.submission, confirmation_event(state, status));
    return;
  }
  Query(*database_,
        "UPDATE submissions SET status = ?, updated = ?, judged = ?, first_finished = coalesce(first_finished, ?) WHERE id = ?",
        name_of(status), time, evaluation, time, job.submission)
      .run();
  follow_submission(*database_, job.submission, evaluation);
  append("finished", job.submission, finished_event(status));
  wake_same(job.submission);
}

std::optional<EvaluationId> Store::dequeue(const std::string& condition, int64_t id, const std::string& why) {
  std::optional<EvaluationId> running;
  {
    Query query(*database_, fmt::format("SELECT evaluation FROM queue WHERE {} = ?", condition), id);
    if (query.step()) running = query.optional_integer(0);
  }
  if (running) {
    Verdict verdict;
    verdict.status = Status::kCancelled;
    verdict.message = why;
    close_evaluation(*running, "cancelled", verdict, true);
  }
  Query(*database_, fmt::format("DELETE FROM queue WHERE {} = ?", condition), id).run();
  return running;
}

bool Store::cancel(SubmissionId submission) {
  const Time time = options_.clock();
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  {
    Query query(*database_, "SELECT status FROM submissions WHERE id = ?", submission);
    if (!query.step()) throw StoreError(ErrorKind::kNotFound, fmt::format("there is no submission {}", submission));
    if (is_final(status_of(query.text(0)))) return false;
  }
  const std::optional<EvaluationId> running =
      dequeue(fmt::format("{} AND submission", kOfSubmissions), submission, "cancelled while it was judged");
  Query(*database_,
        "UPDATE submissions SET status = 'cancelled', updated = ?, judged = coalesce(?, judged), "
        "first_finished = coalesce(first_finished, ?) WHERE id = ?",
        time, running, time, submission)
      .run();
  follow_submission(*database_, submission, running);
  append("cancelled", submission, finished_event(Status::kCancelled));
  wake_same(submission);
  transaction.commit();
  return true;
}

void Store::judge_again(SubmissionId submission, int64_t priority) {
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  {
    Query query(*database_, "SELECT status, same_as FROM submissions WHERE id = ?", submission);
    if (!query.step()) throw StoreError(ErrorKind::kNotFound, fmt::format("there is no submission {}", submission));
    const std::string status = query.text(0);
    if (!is_final(status_of(status))) {
      throw StoreError(ErrorKind::kConflict, fmt::format("submission {} is {} already", submission, status));
    }
    if (!query.is_null(1)) {
      throw StoreError(
          ErrorKind::kConflict,
          fmt::format("submission {} is the same flow as submission {}, whose verdict it shares", submission, query.integer(1)),
          "have that one judged again");
    }
  }
  requeue(submission, priority);
  transaction.commit();
}

void Store::requeue(SubmissionId submission, int64_t priority) {
  end_confirmation(submission);
  enqueue(submission, priority);
  Query(*database_, "UPDATE submissions SET same_as = NULL WHERE id = ?", submission).run();
  set_status(*database_, submission, Status::kQueued, options_.clock());
  append("submitted", submission, nlohmann::json{{"again", true}}.dump());
}

}  // namespace sluice::store
