#include "store/database/shared_verdicts.h"

#include <fmt/format.h>

#include "store/database/jobs.h"
#include "store/database/results.h"
#include "store/error.h"
#include "store/store.h"

namespace sluice::store {

namespace {

/// A submission with the same fingerprint and settings.
struct Same {
  SubmissionId id = 0;
  std::optional<EvaluationId> judged = {};  // with a verdict to share; none: it is being judged
};

/// How long an evaluation may take changes nothing of its verdict. One that ran out of time, or into an error, is none to share:
/// it says more of the machine than of the flow. Nor is one that is to be judged again.
std::optional<Same> find_same(Database& database, SubmissionId submission) {
  Query query(database,
              "SELECT o.id, iif(o.status = 'running', NULL, o.judged) AS shared FROM submissions s "
              "JOIN submissions o ON o.fingerprint = s.fingerprint AND o.id <> s.id AND o.same_as IS NULL "
              "AND json_remove(o.settings, '$.seconds') = json_remove(s.settings, '$.seconds') "
              "WHERE s.id = ? AND o.status IN ('passed', 'below_threshold', 'incorrect_numerical', 'running') "
              "ORDER BY shared IS NULL, o.id LIMIT 1",
              submission);
  if (!query.step()) return std::nullopt;
  return Same{query.integer(0), query.optional_integer(1)};
}

/// What an evaluation said, without what was measured.
Verdict verdict_of(Database& database, EvaluationId evaluation) {
  Query query(database, "SELECT verdict, message, hint, seed FROM evaluations WHERE id = ?", evaluation);
  query.step();
  Verdict verdict;
  verdict.status = status_of(query.text(0));
  verdict.message = query.text(1);
  verdict.hint = query.text(2);
  verdict.seed = query.text(3);
  return verdict;
}

/// Stages, metrics and artifacts, but for artifacts that `to` has already.
void copy_results(Database& database, EvaluationId from, EvaluationId to) {
  Query(database,
        "INSERT INTO stage_results (evaluation, position, stage, status, seconds, message, details) "
        "SELECT ?, position, stage, status, seconds, message, details FROM stage_results WHERE evaluation = ?",
        to, from)
      .run();
  Query(database,
        "INSERT INTO metrics (evaluation, name, task, length, value, low, high, unit) "
        "SELECT ?, name, task, length, value, low, high, unit FROM metrics WHERE evaluation = ?",
        to, from)
      .run();
  Query(database,
        "INSERT INTO artifacts (evaluation, name, media_type, size, bytes) SELECT ?1, name, media_type, size, bytes "
        "FROM artifacts WHERE evaluation = ?2 AND name NOT IN (SELECT name FROM artifacts WHERE evaluation = ?1)",
        to, from)
      .run();
}

struct Sharer {
  SubmissionId id = 0;
  int64_t priority = 0;
};

std::vector<Sharer> sharers_of(Database& database, SubmissionId first) {
  std::vector<Sharer> sharers;
  Query query(database, "SELECT id, priority FROM submissions WHERE same_as = ? ORDER BY id", first);
  while (query.step()) sharers.push_back({query.integer(0), query.integer(1)});
  return sharers;
}

}  // namespace

SubmissionId first_of(Database& database, SubmissionId submission) {
  Query query(database, "SELECT coalesce(same_as, id) FROM submissions WHERE id = ?", submission);
  return query.step() ? query.integer(0) : submission;
}

Sharing Store::share_verdict(const Lease& lease, const std::string& fingerprint, const std::vector<Artifact>& artifacts) {
  Verdict own;
  own.artifacts = artifacts;
  check_results(own);
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  const Job job = required_job(*database_, lease);
  if (job.trial || job.confirmation) throw StoreError(ErrorKind::kInvalid, fmt::format("{} shares no verdict", job.name()));
  Query(*database_, "UPDATE submissions SET fingerprint = ? WHERE id = ?", Blob{fingerprint}, job.submission).run();
  const std::optional<Same> same = find_same(*database_, job.submission);
  if (same && same->judged) {
    write_results(*database_, lease.evaluation, own);
    copy_results(*database_, *same->judged, lease.evaluation);
    const Verdict verdict = verdict_of(*database_, *same->judged);
    close_evaluation(lease.evaluation, "judged", verdict, true);
    Query(*database_, "UPDATE submissions SET same_as = ? WHERE id = ?", same->id, job.submission).run();
    // What an agent has handed in, too, is no secret of the server's: the one that stands for both is shown.
    Query(*database_,
          "UPDATE submissions SET automatic = 0 WHERE id = ? AND automatic = 1 "
          "AND (SELECT automatic FROM submissions WHERE id = ?) = 0",
          same->id, job.submission)
        .run();
    finish(job, lease.evaluation, verdict.status);
  } else if (same) {
    put_back(job, lease.evaluation, kLongestDelay);  // woken when that has ended
  }
  transaction.commit();
  return !same ? Sharing::kNone : same->judged ? Sharing::kShared : Sharing::kAwaited;
}

void Store::wake_same(SubmissionId submission) {
  for (const auto& [sharer, priority] : sharers_of(*database_, submission)) requeue(sharer, priority);
  Query(*database_,
        "UPDATE queue SET available = ?1 WHERE available > ?1 AND evaluation IS NULL AND trial IS NULL AND confirmation IS NULL "
        "AND submission IN (SELECT o.id FROM submissions o JOIN submissions s ON o.fingerprint = s.fingerprint WHERE s.id = ?2)",
        options_.clock(), submission)
      .run();
}

}  // namespace sluice::store
