#pragma once

#include "store/database/sqlite.h"
#include "store/studies.h"

namespace sluice::store {

/// Brings the trials of a submission that have not ended to where it is: in the queue, being judged, or judged. Inside the
/// transaction that changed its status.
void follow_submission(Database& database, SubmissionId submission);

}  // namespace sluice::store
