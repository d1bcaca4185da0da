#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sluice {

/// The metrics by which a summary is compared: what was confirmed or, where nothing was, what was judged.
nlohmann::json standing_metrics(const nlohmann::json& summary);

/// "; confirmed: score 52.1%", or that it was refuted; empty where there is no such verdict.
std::string confirmation_note(const nlohmann::json& summary);

/// How far the confirmation of a submission is, or what was judged beside what was confirmed, and by how much the judged score
/// flattered it; empty if there is none.
std::string confirmation_text(const nlohmann::json& submission);

}  // namespace sluice
