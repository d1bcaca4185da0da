#pragma once

#include <cstddef>
#include <string>

#include "agents/http/http_problem.h"

namespace sluice {

/// Refuses what the model has no room for. Clients know it by the first sentence and by its code, which are OpenAI's. `asked`
/// goes on with "However, ...".
HttpProblem context_problem(int positions, const std::string& asked);

/// What prompts may be.
struct PromptBounds {
  int positions = 0;  // of the model
  size_t bytes = 0;   // that no text which fits has more of

  /// Before a text is encoded. Throws HttpProblem naming `param`.
  void check(size_t text, const char* param) const;
};

}  // namespace sluice
