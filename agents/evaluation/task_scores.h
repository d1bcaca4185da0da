#pragma once

#include <optional>
#include <vector>

#include "agents/evaluation/report.h"
#include "agents/evaluation/runner.h"
#include "agents/evaluation/suite.h"
#include "agents/tasks/scoring.h"

namespace sluice {

/// Scores of one answerer, by document.
using Scores = std::vector<std::vector<Score>>;

Score score_of_generation(const Sample& sample, const Generation& generation);
void append_scores(Scores& scores, const std::vector<JobDocument>& documents, const std::vector<Generation>& generations);

/// What came of a task, the flow beside dense attention, from their scores of the same documents.
TaskResult summarise(const SuiteStage& stage, const SuiteTask& task, const Scores& flow, const Scores& dense);

/// Of the results that count; nothing if none does.
std::optional<MeanAccuracy> mean_of_tasks(const std::vector<TaskResult>& results);
/// Of the results from `first` on, as far as they count; nothing if none does.
std::optional<double> mean_accuracy(const std::vector<TaskResult>& results, size_t first);
/// Likewise, of TaskResult::share.
std::optional<double> mean_share(const std::vector<TaskResult>& results, size_t first);

}  // namespace sluice
