#pragma once

#include <vector>

#include "agents/evaluation/report.h"

namespace sluice {

/// Tasks and speeds of a flow (of speed_of), those of one length together, the shortest first. Problems, which have lengths of
/// their own, are of none.
std::vector<LengthResult> results_by_length(const std::vector<TaskResult>& tasks, const std::vector<TaskSpeed>& speeds);

}  // namespace sluice
