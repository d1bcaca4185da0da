#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "store/records.h"

// What the store holds, as the API tells it. Times are RFC 3339 in UTC, statuses their names.

namespace sluice {

std::string time_text(store::Time time);

nlohmann::json document_of(const store::SubmissionSummary& summary);
/// With the script.
nlohmann::json document_of(const store::Submission& submission);
/// Without the contents of artifacts, and without the seed.
nlohmann::json document_of(const store::Evaluation& evaluation);
nlohmann::json document_of(const store::Metric& metric);
nlohmann::json document_of(const store::Ranked& ranked);
nlohmann::json document_of(const store::FrontPoint& point);
nlohmann::json document_of(const store::HistoryPoint& point);
nlohmann::json document_of(const store::LineageNode& node);
nlohmann::json document_of(const store::Event& event);

template <typename Record>
nlohmann::json documents_of(const std::vector<Record>& records) {
  nlohmann::json list = nlohmann::json::array();
  for (const Record& record : records) list.push_back(document_of(record));
  return list;
}

/// What the API says of these documents: JSON schemas for the OpenAPI document.
nlohmann::json submission_schema();
nlohmann::json list_schema(const std::string& member);

}  // namespace sluice
