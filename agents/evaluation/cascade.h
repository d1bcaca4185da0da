#pragma once

#include <string>
#include <vector>

#include "agents/evaluation/progress.h"
#include "agents/evaluation/report.h"
#include "agents/evaluation/runner.h"
#include "agents/evaluation/suite.h"
#include "agents/tasks/rng.h"
#include "agents/tasks/task.h"

namespace sluice {

/// A flow to be judged: the file, and how it is called in reports.
struct Contestant {
  std::string name;
  std::string path;
};

/// Judges flows from cheap to dear: verify, numerical check, then the suite's stages. Dense attention answers the same
/// samples; each prompt is prefilled once for all. A flow that fails a stage runs no later one, but its speed is measured
/// all the same if it is correct. Fills `flows` and `dense` of the report.
///
/// Every sample follows from `seed` and its place in the suite, so the same seed asks the same questions whatever flows take
/// part. Throws InputError for tasks that do not fit the model; a flow's own errors end up in its report.
Report run_cascade(const Suite& suite, const std::vector<Contestant>& contestants, Runner& runner, const TaskContext& context,
                   const Seed& seed, Progress& progress);

}  // namespace sluice
