#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "store/store.h"

namespace sluice {

/// One side of a comparison.
struct DiffSide {
  store::SubmissionSummary summary;
  store::Submission submission;
  std::vector<store::Metric> metrics;  // of the last verdict, those of single tasks, too
  std::string credits;                 // what its questions gave (agents/evaluation/credits.h); empty: nobody knows
};

/// What is between two submissions: lines of the script, settings, metrics, and the accuracies of the questions that both were
/// asked, of each the same. Without `from` everything is new. `whole`: with all
/// lines that are the same, not only those around changes.
nlohmann::json diff_document(const std::optional<DiffSide>& from, const DiffSide& to, bool whole);

}  // namespace sluice
