#pragma once

#include <optional>
#include <string>

#include "store/database/sqlite.h"
#include "store/records.h"

namespace sluice::store {

/// A row of the queue: a submission that is to be judged, or a trial of one with a seed of its own, or its confirmation.
struct Job {
  int64_t id = 0;
  SubmissionId submission = 0;
  std::optional<int64_t> trial = {};         // its row
  std::optional<int64_t> confirmation = {};  // its row

  /// "submission 5", "a trial of submission 5", ...
  std::string name() const;
};

/// Columns of a Job, first in a row of `queue q`.
constexpr const char* kJobColumns = "q.id, q.submission, q.trial, q.confirmation";
/// Where other columns follow.
constexpr int kJobWidth = 4;
Job read_job(const Query& query);

/// What jobs and evaluations of submissions themselves have, as SQL.
constexpr const char* kOfSubmissions = "trial IS NULL AND confirmation IS NULL";

constexpr Time kLongestDelay = 60'000'000;  // of a job that is put back

/// Of a submission; its trials follow.
void set_status(Database& database, SubmissionId submission, Status status, Time time);
/// The job of a lease that is still held. Throws kConflict.
Job required_job(Database& database, const Lease& lease);
/// How many there were to judge it, those that run among them.
int64_t attempts_of(Database& database, const Job& job);

}  // namespace sluice::store
