#include "store/database/summaries.h"

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "store/database/confirmations.h"
#include "store/database/finals.h"

namespace sluice::store {

namespace {

/// The ids as SQLite's json_each takes them: a list of any length is one parameter.
std::string list_of_ids(const std::vector<SubmissionSummary*>& summaries) {
  nlohmann::json ids = nlohmann::json::array();
  for (const SubmissionSummary* summary : summaries) ids.push_back(summary->id);
  return ids.dump();
}

}  // namespace

SubmissionSummary read_summary(const Query& query) {
  SubmissionSummary summary;
  summary.id = query.integer(0);
  summary.agent = query.text(1);
  summary.name = query.text(2);
  summary.status = status_of(query.text(3));
  summary.created = query.integer(4);
  summary.updated = query.integer(5);
  summary.settings = query.text(6);
  summary.same_as = query.optional_integer(7);
  return summary;
}

void complete_summaries(Database& database, const std::vector<SubmissionSummary*>& summaries) {
  if (summaries.empty()) return;
  std::unordered_multimap<SubmissionId, SubmissionSummary*> by_id;
  for (SubmissionSummary* summary : summaries) by_id.emplace(summary->id, summary);
  const auto each = [&](SubmissionId id, const auto& change) {
    const auto [first, last] = by_id.equal_range(id);
    for (auto found = first; found != last; ++found) change(*found->second);
  };
  const std::string ids = list_of_ids(summaries);
  Query parents(database,
                "SELECT submission, parent FROM parents WHERE submission IN (SELECT value FROM json_each(?)) "
                "ORDER BY submission, position",
                ids);
  while (parents.step()) {
    each(parents.integer(0), [&](SubmissionSummary& summary) { summary.parents.push_back(parents.integer(1)); });
  }
  Query metrics(
      database,
      "SELECT s.id, m.name, m.value, m.low, m.high, m.unit FROM submissions s JOIN metrics m ON m.evaluation = s.judged "
      "WHERE s.id IN (SELECT value FROM json_each(?)) AND m.task = '' AND m.length = 0 ORDER BY s.id, m.name",
      ids);
  while (metrics.step()) {
    const Metric metric{metrics.text(1), "", 0, metrics.real(2), metrics.optional_real(3), metrics.optional_real(4),
                        metrics.text(5)};
    each(metrics.integer(0), [&](SubmissionSummary& summary) { summary.metrics.push_back(metric); });
  }
  for (const Confirmation& confirmation : confirmations_of(database, ids)) {
    each(confirmation.submission, [&](SubmissionSummary& summary) { summary.confirmation = confirmation; });
  }
  for (const Final& last : finals_of(database, ids)) {
    each(last.first, [&](SubmissionSummary& summary) { summary.final = last; });
  }
  Query firsts(database,
               "SELECT final, MIN(submission) FROM finals WHERE final IN (SELECT value FROM json_each(?)) GROUP BY final", ids);
  while (firsts.step()) {
    each(firsts.integer(0), [&](SubmissionSummary& summary) { summary.final_of = firsts.integer(1); });
  }
}

void complete_summaries(Database& database, std::vector<SubmissionSummary>& summaries) {
  std::vector<SubmissionSummary*> all;
  for (SubmissionSummary& summary : summaries) all.push_back(&summary);
  complete_summaries(database, all);
}

}  // namespace sluice::store
