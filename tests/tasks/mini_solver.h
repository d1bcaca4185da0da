#pragma once

#include <string>

namespace sluice::test {

/// Answers the question at the end of a prompt in the mini dialect by reading the prompt and docs/TASKS.md, and nothing else.
/// Throws std::runtime_error where the prompt has no answer.
std::string solve_mini(const std::string& prompt);

}  // namespace sluice::test
