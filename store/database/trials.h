#pragma once

#include <optional>

#include "store/database/sqlite.h"
#include "store/studies.h"

namespace sluice::store {

/// Brings the trials without a seed of a submission that have not ended to where it is: in the queue, being judged, or judged.
/// `ended_by` is the evaluation that ended it, if any did. Inside the transaction that changed its status.
void follow_submission(Database& database, SubmissionId submission, std::optional<EvaluationId> ended_by = {});

/// The same of a trial with a seed, given by its row; `evaluation` is what ended it.
void set_trial(Database& database, int64_t trial, TrialState state, Time time, std::optional<EvaluationId> evaluation = {});

}  // namespace sluice::store
