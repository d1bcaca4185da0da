#include "agents/generation/prompt_bounds.h"

#include <fmt/format.h>

namespace sluice {

HttpProblem context_problem(int positions, const std::string& asked) {
  HttpProblem problem(400, fmt::format("This model's maximum context length is {} tokens. However, {}.", positions, asked));
  return problem.with("code", "context_length_exceeded");
}

void PromptBounds::check(size_t text, const char* param) const {
  if (text <= bytes) return;
  throw context_problem(positions, fmt::format("you sent a text of {} bytes, and {} are the most that fit", text, bytes))
      .with("param", param);
}

}  // namespace sluice
