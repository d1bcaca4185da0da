#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "agents/repl/heat_map.h"

// Documents of the server as people read them. Names and notes are other people's: control characters are made visible.

namespace sluice {

/// One line: "submission 4, quest by ada: passed".
std::string submission_line(const nlohmann::json& submission);

/// "; the same flow as 3", of one that shares the verdict of another; else empty.
std::string sameness_note(const nlohmann::json& summary);

/// A line for whoever has handed in a flow that was there already, which changes nothing; "" if it was new.
std::string repetition_note(const nlohmann::json& submission);

/// A table of summaries, each with what was measured.
std::string submission_table(const nlohmann::json& summaries);

/// The entries of a leaderboard of `metric`, the best first, as confirmed where they are, with the scores of both models where
/// some have a final; below them a warning if several suites judged them.
std::string leaderboard_table(const nlohmann::json& entries, const std::string& metric);

/// A submission with its last evaluation: why it ended so, its confirmation and its final, stages, tasks, mass by layer.
/// `attempts` are all its evaluations, of which those that came to nothing are told, too.
std::string submission_text(const nlohmann::json& submission, const nlohmann::json& attempts, const repl::Style& style);

}  // namespace sluice
