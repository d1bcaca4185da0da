#pragma once

#include <optional>

#include "store/database/sqlite.h"
#include "store/records.h"

namespace sluice::store {

/// A row of the queue: a submission that is to be judged, or a trial of one with a seed of its own.
struct Job {
  int64_t id = 0;
  SubmissionId submission = 0;
  std::optional<int64_t> trial = {};  // its row
};

constexpr Time kLongestDelay = 60'000'000;  // of a job that is put back

/// Of a submission; its trials follow.
void set_status(Database& database, SubmissionId submission, Status status, Time time);
/// How many there were to judge it, those that run among them.
int64_t attempts_of(Database& database, const Job& job);

}  // namespace sluice::store
