// What the service tells of submissions beside one another.

#include <utility>

#include "agents/evaluation/credits.h"
#include "agents/evaluation/metric_table.h"
#include "agents/harness/documents.h"
#include "agents/harness/harness_service.h"
#include "agents/harness/store_problem.h"

namespace sluice {

using nlohmann::json;

json HarnessService::lineage(store::SubmissionId id, const std::string& of, int64_t skip, int64_t limit, Caller& caller) {
  return as_problems([&] {
    caller.take(comparisons_);
    const auto store = stores_.borrow();
    if (!store->find_status(id)) no_submission(id);
    const auto relatives = of == "ancestors"     ? &store::Store::ancestors
                           : of == "descendants" ? &store::Store::descendants
                                                 : &store::Store::family;
    if (of != "ancestors" && of != "descendants" && of != "family") {
      throw HttpProblem(400, "of is ancestors, descendants or family");
    }
    const store::Relatives found = ((*store).*relatives)(id, skip, limit);
    return json{{"nodes", documents_of(found.nodes)},
                {"total", found.total},
                {"next", found.next > 0 ? std::to_string(found.next) : std::string()}};
  });
}

DiffSide HarnessService::side(store::Store& store, store::SubmissionId id) {
  auto summary = store.summary(id);
  auto submission = store.get(id);
  if (!summary || !submission) no_submission(id);
  std::vector<store::Metric> metrics = store.metrics(id);
  const std::optional<store::Artifact> credits = store.artifact(id, kCreditsArtifact);
  const bool is_whole = credits && credits->size == std::ssize(credits->bytes);
  return {std::move(*summary), std::move(*submission), std::move(metrics), is_whole ? credits->bytes : std::string()};
}

json HarnessService::diff(store::SubmissionId id, std::optional<store::SubmissionId> from, bool whole, Caller& caller) {
  return as_problems([&] {
    caller.take(diffs_);
    const auto store = stores_.borrow();
    const DiffSide to = side(*store, id);
    if (!from && !to.summary.parents.empty()) from = to.summary.parents.front();
    return diff_document(from ? std::optional(side(*store, *from)) : std::nullopt, to, whole);
  });
}

json HarnessService::leaderboard(store::Ranking ranking, Caller& caller) {
  return as_problems([&] {
    const bool is_by_score = ranking.metric == metrics::kScore.name && ranking.is_of_all() && ranking.higher_is_better;
    const bool is_of_passed = ranking.filter.status.value_or(store::Status::kPassed) == store::Status::kPassed;
    ranking.by_finals = is_by_score && is_of_passed && ranking.filter.model.empty();
    caller.take(turns_of_comparison(ranking.filter));
    const auto store = stores_.borrow();
    json entries = documents_of(store->leaderboard(ranking));
    return json{{"entries", std::move(entries)}, {"total", store->count_ranked(ranking)}};
  });
}

json HarnessService::finals(const store::Filter& filter, int limit, Caller& caller) {
  return as_problems([&] {
    caller.take(turns_of_comparison(filter));
    return sluice::document_of(stores_.borrow()->compare_finals(metrics::kScore.name, filter, limit));
  });
}

json HarnessService::front(const std::string& metric, const std::string& speed, const store::Filter& filter, Caller& caller) {
  return as_problems([&] {
    caller.take(turns_of_comparison(filter));
    return json{{"points", documents_of(stores_.borrow()->pareto_front(metric, speed, filter))}};
  });
}

json HarnessService::history(const store::Ranking& ranking, Caller& caller) {
  return as_problems([&] {
    caller.take(turns_of_comparison(ranking.filter));
    const auto store = stores_.borrow();
    return json{{"points", documents_of(store->history(ranking))}, {"total", store->count_measured(ranking)}};
  });
}

}  // namespace sluice
