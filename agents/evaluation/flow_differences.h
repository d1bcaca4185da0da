#pragma once

#include <optional>
#include <vector>

#include "agents/evaluation/report.h"

namespace sluice {

/// What two flows answered of the same samples, without their names. Nothing where no task that counts was asked of both. Throws
/// InternalError for results of the same task that are not of the same samples.
std::optional<FlowDifference> difference_of(const std::vector<TaskResult>& flow, const std::vector<TaskResult>& other);

/// Of every pair of up to six flows; of more of them, of the one with the highest mean accuracy and each other one.
std::vector<FlowDifference> differences_between(const std::vector<FlowReport>& flows);

}  // namespace sluice
