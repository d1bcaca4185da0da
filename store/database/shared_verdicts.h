#pragma once

#include "store/database/sqlite.h"
#include "store/records.h"

// Scripts that turn out to be the same flow, with the same settings, have one verdict: trying again is no second draw of its
// questions or its speed. The first one that is judged has it, the others share it.

namespace sluice::store {

/// The submission whose verdict it has. Of one that there is not, itself.
SubmissionId first_of(Database& database, SubmissionId submission);

}  // namespace sluice::store
