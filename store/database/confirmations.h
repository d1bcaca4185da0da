#pragma once

#include <optional>
#include <string>
#include <vector>

#include "store/database/sqlite.h"
#include "store/records.h"

namespace sluice::store {

/// Of the last verdicts of submissions, `ids` a JSON list of them, by submission.
std::vector<Confirmation> confirmations_of(Database& database, const std::string& ids);

/// Of a confirmation, given by its row; `evaluation` is what ended it.
void set_confirmation(Database& database, int64_t confirmation, ConfirmationState state, std::optional<Time> finished = {},
                      std::optional<EvaluationId> evaluation = {});

/// What a verdict makes of it: one that says nothing of the flow leaves it without.
ConfirmationState confirmation_state_of(Status status);

/// Data of the event "confirmation".
std::string confirmation_event(ConfirmationState state, std::optional<Status> status = {});

}  // namespace sluice::store
