#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "agents/evaluation/report.h"

// What each question gave, document by document. A server that asks everybody the same questions keeps it to itself, for paired
// tests: it would tell a search which questions are still to be won.

namespace sluice {

/// The name of the artifact that has it, which a server shows to nobody.
inline constexpr const char* kCreditsArtifact = "credits.json";

/// Takes it out of a report of one flow (schema sluice.eval/1): a document of schema sluice.credits/1. `report` has a list
/// "flows" of one; what else it lacks is not there.
nlohmann::json take_credits(nlohmann::json& report);

/// Of two flows by their documents of schema sluice.credits/1, without their names, over the tasks of which dense attention
/// answered both times the same. Nothing where there is none. Throws InputError for a text that is no such document.
std::optional<FlowDifference> difference_of_credits(const std::string& flow, const std::string& other);

}  // namespace sluice
