#pragma once

#include <string>
#include <vector>

#include "store/database/sqlite.h"
#include "store/records.h"

namespace sluice::store {

/// Columns of a SubmissionSummary, first in a row; `s` are submissions and `a` their agents.
constexpr const char* kSummaryColumns = "s.id, a.name, s.name, s.status, s.created, s.updated, s.settings, s.same_as";
constexpr const char* kSelectSummary =
    "SELECT s.id, a.name, s.name, s.status, s.created, s.updated, s.settings, s.same_as FROM submissions s "
    "JOIN agents a ON a.id = s.agent";
/// Where other columns follow.
constexpr int kSummaryWidth = 8;

/// Without parents and metrics.
SubmissionSummary read_summary(const Query& query);

/// Adds parents, metrics, confirmations and finals, by one query or two each however many summaries there are. Inside the
/// transaction that read them.
void complete_summaries(Database& database, const std::vector<SubmissionSummary*>& summaries);
void complete_summaries(Database& database, std::vector<SubmissionSummary>& summaries);

}  // namespace sluice::store
