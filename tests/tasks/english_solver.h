#pragma once

#include <string>

namespace sluice::test {

/// Answers the question at the end of an English prompt by reading its sentences. Throws std::runtime_error where the prompt
/// has no answer.
std::string solve_english(const std::string& prompt);

}  // namespace sluice::test
