#include "store/database/invariants.h"

#include <fmt/format.h>

#include <array>

namespace sluice::store {

namespace {

struct Invariant {
  const char* broken;  // "submission 5 ...", "the confirmation of submission 5 ...", "trial 0 of study 2 ..."
  const char* sql;     // ids of the submissions that break it; study and number of the trials
};

constexpr std::array kInvariants = {
    Invariant{"waits or runs, and is not in the queue",
              "SELECT id FROM submissions WHERE status IN ('queued', 'running') "
              "AND id NOT IN (SELECT submission FROM queue WHERE trial IS NULL AND confirmation IS NULL)"},
    Invariant{"is final, and still in the queue",
              "SELECT q.submission FROM queue q JOIN submissions s ON s.id = q.submission "
              "WHERE q.trial IS NULL AND q.confirmation IS NULL AND s.status NOT IN ('queued', 'running')"},
    Invariant{"is running without a lease, or has a lease without running",
              "SELECT q.submission FROM queue q JOIN submissions s ON s.id = q.submission "
              "WHERE q.trial IS NULL AND q.confirmation IS NULL AND (s.status = 'running') <> (q.evaluation IS NOT NULL)"},
    Invariant{"has a lease on an evaluation that is over, or another one's",
              "SELECT q.submission FROM queue q JOIN evaluations e ON e.id = q.evaluation "
              "WHERE e.finished IS NOT NULL OR e.submission <> q.submission OR e.trial IS NOT q.trial "
              "OR e.confirmation IS NOT q.confirmation OR e.worker <> q.lease_owner"},
    Invariant{"has an evaluation that runs without a lease",
              "SELECT submission FROM evaluations WHERE finished IS NULL "
              "AND id NOT IN (SELECT evaluation FROM queue WHERE evaluation IS NOT NULL)"},
    Invariant{"is final without a verdict that says so",
              "SELECT s.id FROM submissions s LEFT JOIN evaluations e ON e.id = s.judged "
              "WHERE s.status NOT IN ('queued', 'running', 'cancelled') AND (e.verdict IS NULL OR e.verdict <> s.status)"},
    Invariant{"was judged by an evaluation of another one",
              "SELECT s.id FROM submissions s JOIN evaluations e ON e.id = s.judged "
              "WHERE e.submission <> s.id OR e.trial IS NOT NULL OR e.confirmation IS NOT NULL"},
    Invariant{"is final, and no time says since when",
              "SELECT id FROM submissions WHERE status NOT IN ('queued', 'running') AND first_finished IS NULL"},
    Invariant{"has attempts that are not numbered one by one",
              "SELECT submission FROM evaluations GROUP BY submission, trial, confirmation HAVING MAX(attempt) <> COUNT(*)"},
    Invariant{"shares the verdict of another flow, or of one that has none of its own",
              "SELECT s.id FROM submissions s JOIN submissions o ON o.id = s.same_as "
              "WHERE o.fingerprint IS NOT s.fingerprint OR o.same_as IS NOT NULL OR o.judged IS NULL OR o.status = 'cancelled'"},
    Invariant{"shares a verdict, and waits or runs",
              "SELECT id FROM submissions WHERE same_as IS NOT NULL AND "
              "status IN ('queued', 'running')"},
    Invariant{"is the final of a flow with another script, or with the same settings",
              "SELECT f.final FROM finals f JOIN submissions s ON s.id = f.submission JOIN submissions t ON t.id = f.final "
              "WHERE t.script <> s.script OR t.settings = s.settings"},
    Invariant{"is a final, and has one itself",
              "SELECT f.submission FROM finals f JOIN submissions s ON s.id = f.submission "
              "WHERE s.automatic = 1"},
    Invariant{"is in the queue for another agent",
              "SELECT q.submission FROM queue q JOIN submissions s ON s.id = q.submission "
              "WHERE q.trial IS NULL AND q.confirmation IS NULL AND q.agent <> s.agent"},
};

constexpr std::array kConfirmationInvariants = {
    Invariant{"has not ended, and is not where its job in the queue is",
              "SELECT c.submission FROM confirmations c LEFT JOIN queue q ON q.confirmation = c.id WHERE c.finished IS NULL "
              "AND c.state IS NOT CASE WHEN q.id IS NULL THEN NULL WHEN q.evaluation IS NULL THEN 'queued' ELSE 'running' END"},
    Invariant{"has ended, and is in the queue",
              "SELECT c.submission FROM queue q JOIN confirmations c ON c.id = q.confirmation WHERE c.finished IS NOT NULL"},
    Invariant{"is in the queue for another submission or agent",
              "SELECT c.submission FROM queue q JOIN confirmations c ON c.id = q.confirmation "
              "WHERE q.submission <> c.submission OR q.agent <> c.agent"},
    Invariant{
        "is of a verdict of another submission, or of one that did not pass",
        "SELECT c.submission FROM confirmations c JOIN evaluations e ON e.id = c.judged "
        "WHERE e.submission <> c.submission OR e.trial IS NOT NULL OR e.confirmation IS NOT NULL OR e.verdict IS NOT 'passed'"},
    Invariant{
        "was ended by an evaluation that is not its own",
        "SELECT c.submission FROM confirmations c JOIN evaluations e ON e.id = c.evaluation WHERE e.confirmation IS NOT c.id"},
    Invariant{"ended as its evaluation does not say",
              "SELECT c.submission FROM confirmations c JOIN evaluations e ON e.id = c.evaluation WHERE e.verdict IS NULL "
              "OR (c.state = 'done') <> (e.verdict NOT IN ('runtime_error', 'timeout', 'cancelled'))"},
    Invariant{"has evaluations of another submission",
              "SELECT c.submission FROM confirmations c JOIN evaluations e ON e.confirmation = c.id "
              "WHERE e.submission <> c.submission"},
    Invariant{"is the last of confirmations that are not numbered one by one, of its model, device and suite",
              "SELECT MAX(c.submission) FROM confirmations c JOIN submissions s ON s.id = c.submission "
              "GROUP BY s.model, s.device, s.suite HAVING MAX(c.tries) <> COUNT(*) OR COUNT(DISTINCT c.tries) <> COUNT(*)"},
};

constexpr std::array kTrialInvariants = {
    Invariant{
        "has not ended, and is not where its submission is",
        "SELECT t.study, t.number FROM trials t JOIN submissions s ON s.id = t.submission WHERE t.finished IS NULL "
        "AND t.seed IS NULL AND t.state <> CASE s.status WHEN 'queued' THEN 'waiting' WHEN 'running' THEN 'running' ELSE '' END"},
    Invariant{"has a seed and has not ended, and is not where its job in the queue is",
              "SELECT t.study, t.number FROM trials t LEFT JOIN queue q ON q.trial = t.id "
              "WHERE t.finished IS NULL AND t.seed IS NOT NULL AND t.state IS NOT "
              "CASE WHEN q.id IS NULL THEN NULL WHEN q.evaluation IS NULL THEN 'waiting' ELSE 'running' END"},
    Invariant{
        "has ended or has no seed, and is in the queue",
        "SELECT t.study, t.number FROM queue q JOIN trials t ON t.id = q.trial WHERE t.seed IS NULL OR t.finished IS NOT NULL"},
    Invariant{"is in the queue for another submission or agent",
              "SELECT t.study, t.number FROM queue q JOIN trials t ON t.id = q.trial "
              "WHERE q.submission <> t.submission OR q.agent <> t.agent"},
    Invariant{"was ended by an evaluation that is not its own, though it has a seed, or by another trial's",
              "SELECT t.study, t.number FROM trials t JOIN evaluations e ON e.id = t.evaluation "
              "WHERE e.trial IS NOT CASE WHEN t.seed IS NULL THEN NULL ELSE t.id END"},
    Invariant{"was ended by an evaluation of another submission",
              "SELECT t.study, t.number FROM trials t JOIN evaluations e ON e.id = t.evaluation "
              "WHERE e.submission <> t.submission"},
    Invariant{"ended as its evaluation does not say",
              "SELECT t.study, t.number FROM trials t JOIN evaluations e ON e.id = t.evaluation "
              "WHERE e.verdict IS NULL OR t.state <> CASE e.verdict WHEN 'passed' THEN 'complete' "
              "WHEN 'below_threshold' THEN 'pruned' ELSE 'failed' END"},
    Invariant{"has a submission with other settings than its study",
              "SELECT t.study, t.number FROM trials t JOIN submissions s ON s.id = t.submission JOIN studies u ON u.id = t.study "
              "WHERE s.settings <> u.settings"},
    Invariant{"is told as complete without a value, or as failed with one",
              "SELECT study, number FROM trials WHERE told = 1 AND ("
              "(state = 'complete' AND id NOT IN (SELECT trial FROM told_values)) OR "
              "(state = 'failed' AND id IN (SELECT trial FROM told_values)))"},
    Invariant{"has values that nobody told",
              "SELECT study, number FROM trials WHERE told = 0 AND id IN (SELECT trial FROM told_values)"},
    Invariant{"is the last of trials that are not numbered one by one",
              "SELECT study, MAX(number) FROM trials GROUP BY study HAVING MAX(number) <> COUNT(*) - 1"},
    Invariant{"is the first that an idempotency key stands for, and not all of those are there",
              "SELECT r.study, r.first FROM trial_requests r "
              "WHERE r.first + r.count > (SELECT COUNT(*) FROM trials t WHERE t.study = r.study)"},
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
  for (const Invariant& invariant : kConfirmationInvariants) {
    Query query(database, invariant.sql);
    while (query.step()) found.push_back(fmt::format("the confirmation of submission {} {}", query.integer(0), invariant.broken));
  }
  for (const Invariant& invariant : kTrialInvariants) {
    Query query(database, invariant.sql);
    while (query.step()) {
      found.push_back(fmt::format("trial {} of study {} {}", query.integer(1), query.integer(0), invariant.broken));
    }
  }
  return found;
}

}  // namespace sluice::store
