#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "store/studies.h"

// What the store holds, as the API tells it. Times are RFC 3339 in UTC, statuses their names.

namespace sluice {

const char* name_of(store::Role role);

/// With parents, the settings that lists are filtered by, and the metrics of the last verdict by name.
nlohmann::json document_of(const store::SubmissionSummary& summary);
/// Whole: the summary with script, notes and all settings.
nlohmann::json document_of(const store::SubmissionSummary& summary, const store::Submission& submission);
/// Without the contents of artifacts, and without the seed.
nlohmann::json document_of(const store::Evaluation& evaluation);
/// Of `submission`'s last verdict, with what the judged score was above the confirmed one; its seed once that may be told.
nlohmann::json document_of(const store::Confirmation& confirmation, const store::SubmissionSummary& submission);
nlohmann::json document_of(const store::Metric& metric);
nlohmann::json document_of(const store::Ranked& ranked);
nlohmann::json document_of(const store::FrontPoint& point);
nlohmann::json document_of(const store::HistoryPoint& point);
/// Agreement, pairs in opposite order, and what passed on one model alone.
nlohmann::json document_of(const store::FinalsComparison& comparison);
nlohmann::json document_of(const store::AgentSummary& agent);
nlohmann::json document_of(const store::Study& study);
nlohmann::json document_of(const store::Trial& trial);
nlohmann::json document_of(const store::Event& event);

template <typename Record>
nlohmann::json documents_of(const std::vector<Record>& records) {
  nlohmann::json list = nlohmann::json::array();
  for (const Record& record : records) list.push_back(document_of(record));
  return list;
}

}  // namespace sluice
