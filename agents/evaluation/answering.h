#pragma once

#include <vector>

#include "agents/evaluation/prefilled.h"
#include "agents/evaluation/runner.h"
#include "host/serving/engine.h"
#include "host/text/tokenizer.h"

namespace sluice {

/// What asks an engine to go on with a prompt.
Request request_for(const PrefilledPrompt& prompt);

/// What an engine answers `requests`, which are those of `prompts`, in their order: all of them at once. A generation ends early
/// where nothing that could follow changes its score.
std::vector<Generation> answer_all(Engine& engine, const std::vector<PrefilledPrompt>& prompts, std::vector<Request> requests,
                                   const Tokenizer& tokenizer);

}  // namespace sluice
