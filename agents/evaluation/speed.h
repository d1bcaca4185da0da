#pragma once

#include <vector>

#include "agents/evaluation/prefilled.h"
#include "agents/evaluation/report.h"
#include "agents/evaluation/runner.h"

namespace sluice {

/// Asks for the attention mass of a few steps. Then decodes `options.batch` prompts (those of one document, repeated as needed)
/// with dense attention and with the flow, each in an engine and a pool of its own, `options.steps` steps of one and then of the
/// other, `options.pairs` times in random order. The batch is smaller where memory does not allow as many. Throws what engines
/// throw.
SpeedResult measure_speed(const std::vector<PrefilledPrompt>& document, Device& device, const Model& model, const Plan& plan,
                          const SpeedOptions& options);

}  // namespace sluice
