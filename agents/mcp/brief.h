#pragma once

#include <nlohmann/json.hpp>
#include <string>

// The documents of the harness as a model reads them: the same facts, numbers with four digits, nothing that it cannot use.

namespace sluice::mcp {

/// A submission in a list: id, agent, name, status, created, parents, settings, metrics of its last verdict, its confirmation if
/// there is one.
nlohmann::json brief_row(const nlohmann::json& summary);
/// The same in a line: `12 "quest" by ada: passed; accuracy 0.963 [0.94, 0.98], speedup 2.9; suite quick; parents 3`.
std::string text_of_row(const nlohmann::json& row);

/// A submission with what its last evaluation says of it: message, hint, stages, tasks. Without its script.
nlohmann::json brief_submission(const nlohmann::json& submission);
std::string text_of_submission(const nlohmann::json& brief);

/// A name in quotes, with its own letters.
std::string quoted(const nlohmann::json& name);
/// A metric with its interval: `0.963 [0.94, 0.98]`.
std::string text_of_metric(const nlohmann::json& metric);
nlohmann::json brief_metric(const nlohmann::json& metric);
nlohmann::json rounded(const nlohmann::json& number);

}  // namespace sluice::mcp
