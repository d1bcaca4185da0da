#include "store/database/jobs.h"

#include "store/database/trials.h"

namespace sluice::store {

void set_status(Database& database, SubmissionId submission, Status status, Time time) {
  Query(database, "UPDATE submissions SET status = ?, updated = ? WHERE id = ?", name_of(status), time, submission).run();
  follow_submission(database, submission);
}

int64_t attempts_of(Database& database, const Job& job) {
  Query query(database, "SELECT COUNT(*) FROM evaluations WHERE submission = ? AND trial IS ?", job.submission, job.trial);
  query.step();
  return query.integer(0);
}

}  // namespace sluice::store
