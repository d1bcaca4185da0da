#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "store/studies.h"

// What agents say of studies and trials. All throw InputError for what is no such document, HttpProblem (422) for a member that
// nobody knows.

namespace sluice {

/// {"name", "goal", "settings"}.
store::StudyDraft study_draft_of(const nlohmann::json& document);

/// {"state"}.
store::StudyState study_state_of(const nlohmann::json& document);

/// One trial, or a list of them: each {"script", "name", "notes", "parents"} or {"submission"}, with "params" and
/// "seed". A flow without a name has that of the study.
std::vector<store::TrialDraft> trial_drafts_of(const nlohmann::json& document, const std::string& study);

/// {"state", "values": {NAME: NUMBER}}; without a state complete.
store::Told told_of(const nlohmann::json& document);

}  // namespace sluice
