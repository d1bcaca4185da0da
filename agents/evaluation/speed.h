#pragma once

#include <vector>

#include "agents/evaluation/prefilled.h"
#include "agents/evaluation/report.h"
#include "agents/evaluation/runner.h"

namespace sluice {

/// Waits for quiet, then answers questions of `batch` once more, by dense attention and by the flow in turn, each in an engine
/// and a pool of its own, and times every decode step up to the last that is scored. The requests are those whose answers were
/// scored: same prompts, seeds and steps, so a flow cannot act otherwise where it is timed, and what it answers now is compared
/// with what it answered then. Pages and attention mass are of the same steps. Throws what engines throw.
TaskSpeed time_questions(const EngineBatch& batch, const Answers& answers, Device& device, const Model& model, const Plan& plan,
                         const SpeedOptions& options);

/// One task of which several batches were timed, at least one: each counts as often as it has pairs.
TaskSpeed united(std::vector<TaskSpeed> batches);

/// The speed over all tasks, at least one, and of each.
SpeedResult speed_of(std::vector<TaskSpeed> tasks);

}  // namespace sluice
