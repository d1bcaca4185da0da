#pragma once

#include "store/database/sqlite.h"
#include "store/records.h"

namespace sluice::store {

/// Throws StoreError (kInvalid) for results that cannot be kept: numbers that are not finite, names given twice, no JSON.
void check_results(const Verdict& verdict);
void write_results(Database& database, EvaluationId evaluation, const Verdict& verdict);
/// Stages, metrics by name, task and length, and artifacts by name.
void read_results(Database& database, EvaluationId evaluation, Verdict& verdict);
std::vector<Metric> read_metrics(Database& database, EvaluationId evaluation);

}  // namespace sluice::store
