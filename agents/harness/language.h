#pragma once

#include <nlohmann/json.hpp>
#include <string>

// What an agent needs to know to write flows, from the tables that the program itself uses.

namespace sluice {

/// {"operators": [{"name", "signature", "stage", "shape", "summary"}]}.
nlohmann::json operators_document();
/// {"flows": [{"name", "title", "script"}]}: those that ship with the program. The title is the first line of the script.
nlohmann::json flows_document();
/// Suites as the model that judges is asked them; `is_mini`: it speaks the mini dialect.
/// {"suites": [{"name", "default", "stages": [{"name", "threshold", "tasks": [{"task", "tokens", "samples"}]}]}]}.
nlohmann::json suites_document(const std::string& usual, bool is_mini);
/// How to write, check, hand in and improve a flow: Markdown, with all operators and suites.
std::string guide_text(const std::string& usual_suite, bool is_mini);

}  // namespace sluice
