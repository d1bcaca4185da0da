#include "store/database/jobs.h"

#include <fmt/format.h>

#include "store/database/trials.h"
#include "store/error.h"

namespace sluice::store {

std::string Job::name() const {
  const char* part = trial ? "a trial of " : confirmation ? "the confirmation of " : "";
  return fmt::format("{}submission {}", part, submission);
}

Job read_job(const Query& query) {
  return {query.integer(0), query.integer(1), query.optional_integer(2), query.optional_integer(3)};
}

void set_status(Database& database, SubmissionId submission, Status status, Time time) {
  Query(database, "UPDATE submissions SET status = ?, updated = ? WHERE id = ?", name_of(status), time, submission).run();
  follow_submission(database, submission);
}

Job required_job(Database& database, const Lease& lease) {
  Query query(database, fmt::format("SELECT {} FROM queue q WHERE q.submission = ? AND q.evaluation = ?", kJobColumns),
              lease.submission, lease.evaluation);
  if (query.step()) return read_job(query);
  const Job lost{0, lease.submission, lease.trial, lease.confirmation ? std::optional(lease.confirmation->id) : std::nullopt};
  throw StoreError(ErrorKind::kConflict, fmt::format("{} no longer holds the lease on {}", lease.worker, lost.name()),
                   fmt::format("it expired or the {}: stop working on it", lost.trial          ? "trial was told its end"
                                                                           : lost.confirmation ? "submission is judged again"
                                                                                               : "submission was cancelled"));
}

int64_t attempts_of(Database& database, const Job& job) {
  Query query(database, "SELECT COUNT(*) FROM evaluations WHERE submission = ? AND trial IS ? AND confirmation IS ?",
              job.submission, job.trial, job.confirmation);
  query.step();
  return query.integer(0);
}

}  // namespace sluice::store
