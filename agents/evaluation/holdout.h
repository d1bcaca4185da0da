#pragma once

#include "agents/evaluation/suite.h"
#include "agents/tasks/rng.h"

namespace sluice {

/// Questions of kinds and at lengths that nobody who hands in flows is told: four tasks, two of which `shown` does not ask if
/// there are so many, each at a length of its own between half and all of the longest that `shown` asks, at none that it asks.
/// Which ones follows from `kinds` alone. They have in all half the samples of `shown`, no threshold, and are not timed. A suite
/// of texts, problems or copies has no holdout: then there are no stages. `shown` is as it is asked of the model
/// (`leave_to_mini`); `is_mini`: of a model with the mini dialect.
Suite holdout_of(const Suite& shown, const Seed& kinds, bool is_mini);

/// Of the suite that holdout_of gives, and of its one stage.
inline constexpr const char* kHoldout = "holdout";

}  // namespace sluice
