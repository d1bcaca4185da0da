#pragma once

#include <string>
#include <vector>

#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/progress.h"
#include "agents/evaluation/report.h"
#include "agents/evaluation/runner.h"
#include "agents/evaluation/suite.h"
#include "agents/tasks/rng.h"
#include "agents/tasks/task.h"
#include "scripting/base/error.h"

namespace sluice {

/// A flow to be judged, and how it is called in reports.
struct Contestant {
  std::string name;
  FlowScript script;
};

/// The report of a flow that does not even trace or compile.
FlowReport rejected(const Contestant& contestant, const InputError& error);

/// Judges flows from cheap to dear: verify, numerical check, traces, then the suite's stages. Dense attention answers the same
/// samples; each prompt is prefilled once for all. A flow that fails a stage runs no later one, but its speed is measured
/// all the same if it is correct. Fills `flows` and `dense` of the report.
///
/// Every sample follows from `seed` and its task, length and place in that task, so the same seed asks the same questions
/// whatever flows take part. Never throws for what goes wrong on the way: a flow's own errors end up in its report; a task that
/// cannot be asked, or that dense attention cannot answer, becomes one of the report's `errors`, and the others go on. The
/// suite's problem sets have been read (`prepare_suite`).
Report run_cascade(const Suite& suite, const std::vector<Contestant>& contestants, Runner& runner, const TaskContext& context,
                   const Seed& seed, Progress& progress);

/// What comes before the stages of a suite, for a runner that has traces and no model.
Report run_cascade_on_traces(const std::vector<Contestant>& contestants, Runner& runner, const Seed& seed, Progress& progress);

}  // namespace sluice
