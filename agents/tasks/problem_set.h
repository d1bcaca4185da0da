#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agents/tasks/task.h"

namespace sluice {

/// One line of a user's problem set.
struct Problem {
  std::string id;  // the line number where the file gives none
  std::string question;
  std::string answer;
};

/// Parses JSON lines: {"problem" or "question" or "prompt": text, "answer": text or number, "id": optional}. Empty lines are
/// skipped. Throws InputError with `name` and the line number of the first bad line.
std::vector<Problem> parse_problems(std::string_view text, const std::string& name);
/// Throws InputError if the file cannot be read.
std::vector<Problem> load_problems(const std::string& path);

/// The prompt for a problem: in the model's chat format if it has one, asking for a boxed answer.
/// `max_tokens` bounds the generation.
Sample problem_sample(const Problem& problem, const TaskContext& context, int max_tokens);

}  // namespace sluice
