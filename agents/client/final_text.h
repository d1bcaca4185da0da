#pragma once

#include <nlohmann/json.hpp>
#include <string>

// What a second model says of flows that passed on the first, and where both disagree.

namespace sluice {

/// "; on smollm2: passed, score 78.1%", with what was measured there as far as it is; "; the final of 3" of a final itself; empty
/// where there is none.
std::string final_note(const nlohmann::json& summary);

/// How far the final of a submission is, or what both models measured, side by side; empty if there is none.
std::string final_text(const nlohmann::json& submission);

/// What stands for a final in a column of scores: its score, with what became of it where it did not pass.
std::string final_score_text(const nlohmann::json& summary);

/// What `GET /v1/finals` answers, below a leaderboard: how far the models agree, pairs of flows in opposite order, and flows that
/// passed on one alone; empty where no flow has a verdict of both.
std::string disagreement_text(const nlohmann::json& finals);

}  // namespace sluice
