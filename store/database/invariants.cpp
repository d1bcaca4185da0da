#include "store/database/invariants.h"

#include <fmt/format.h>

#include <array>

namespace sluice::store {

namespace {

struct Invariant {
  const char* broken;  // "submission 5 ..."
  const char* sql;     // ids of the submissions that break it
};

constexpr std::array kInvariants = {
    Invariant{"waits or runs, and is not in the queue",
              "SELECT id FROM submissions WHERE status IN ('queued', 'running') AND id NOT IN (SELECT submission FROM queue)"},
    Invariant{"is final, and still in the queue",
              "SELECT q.submission FROM queue q JOIN submissions s ON s.id = q.submission "
              "WHERE s.status NOT IN ('queued', 'running')"},
    Invariant{"is running without a lease, or has a lease without running",
              "SELECT q.submission FROM queue q JOIN submissions s ON s.id = q.submission "
              "WHERE (s.status = 'running') <> (q.evaluation IS NOT NULL)"},
    Invariant{"has a lease on an evaluation that is over, or another one's",
              "SELECT q.submission FROM queue q JOIN evaluations e ON e.id = q.evaluation "
              "WHERE e.finished IS NOT NULL OR e.submission <> q.submission OR e.worker <> q.lease_owner"},
    Invariant{"has an evaluation that runs without a lease",
              "SELECT submission FROM evaluations WHERE finished IS NULL "
              "AND id NOT IN (SELECT evaluation FROM queue WHERE evaluation IS NOT NULL)"},
    Invariant{"is final without a verdict that says so",
              "SELECT s.id FROM submissions s LEFT JOIN evaluations e ON e.id = s.judged "
              "WHERE s.status NOT IN ('queued', 'running', 'cancelled') AND (e.verdict IS NULL OR e.verdict <> s.status)"},
    Invariant{"was judged by an evaluation of another one",
              "SELECT s.id FROM submissions s JOIN evaluations e ON e.id = s.judged WHERE e.submission <> s.id"},
    Invariant{"is final, and no time says since when",
              "SELECT id FROM submissions WHERE status NOT IN ('queued', 'running') AND first_finished IS NULL"},
    Invariant{"has attempts that are not numbered one by one",
              "SELECT submission FROM evaluations GROUP BY submission HAVING MAX(attempt) <> COUNT(*)"},
    Invariant{"is in the queue for another agent",
              "SELECT q.submission FROM queue q JOIN submissions s ON s.id = q.submission WHERE q.agent <> s.agent"},
};

}  // namespace

std::vector<std::string> damage_of(Database& database) {
  std::vector<std::string> found;
  Query query(database, "PRAGMA integrity_check");
  while (query.step()) {
    if (query.text(0) != "ok") found.push_back(query.text(0));
  }
  return found;
}

std::vector<std::string> broken_invariants(Database& database) {
  std::vector<std::string> found = damage_of(database);
  Query keys(database, "PRAGMA foreign_key_check");
  while (keys.step()) found.push_back(fmt::format("a row of {} points to a missing row of {}", keys.text(0), keys.text(2)));
  for (const Invariant& invariant : kInvariants) {
    Query query(database, invariant.sql);
    while (query.step()) found.push_back(fmt::format("submission {} {}", query.integer(0), invariant.broken));
  }
  return found;
}

}  // namespace sluice::store
