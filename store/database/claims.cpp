// How jobs come into the queue, and which of them a worker takes next.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "store/database/claims.h"
#include "store/database/confirmations.h"
#include "store/database/jobs.h"
#include "store/database/sqlite.h"
#include "store/database/trials.h"
#include "store/folder/sodium.h"
#include "store/store.h"

namespace sluice::store {

namespace {

struct NextJob {
  Job job;
  int64_t agent = 0;
  std::optional<int64_t> seed = {};
  std::optional<ConfirmationJob> confirmation = {};
};

std::optional<NextJob> next_job(Database& database, Time time, const Equipment& equipment) {
  Query query(database,
              fmt::format("SELECT {}, q.agent, t.seed, c.seed, c.tries, c.factor FROM queue q JOIN agents a ON a.id = q.agent "
                          "JOIN submissions s ON s.id = q.submission LEFT JOIN trials t ON t.id = q.trial "
                          "LEFT JOIN confirmations c ON c.id = q.confirmation WHERE {} "
                          "AND q.evaluation IS NULL AND q.available NOT BETWEEN ?4 AND ?5 ORDER BY q.priority DESC, "
                          "(SELECT COUNT(*) FROM queue r WHERE r.agent = q.agent AND r.evaluation IS NOT NULL), a.served, "
                          "coalesce(q.trial, q.confirmation) IS NOT NULL, "
                          "iif(coalesce(q.trial, q.confirmation) IS NULL, q.submission, q.id) LIMIT 1",
                          kJobColumns, is_suited_sql(1)),
              equipment.device, equipment.model_digest, equipment.model, time + 1,
              time + kLongestDelay);  // what lies further off is of a clock that was set back
  if (!query.step()) return std::nullopt;
  NextJob next{read_job(query), query.integer(kJobWidth), query.optional_integer(kJobWidth + 1), {}};
  if (next.job.confirmation) {
    next.confirmation = {*next.job.confirmation, hexadecimal(query.blob(kJobWidth + 2)), query.integer(kJobWidth + 3),
                         query.integer(kJobWidth + 4)};
  }
  return next;
}

}  // namespace

std::string is_suited_sql(int first) {
  return fmt::format(
      "(?{device} = '' OR coalesce(s.device, ?{device}) = ?{device}) "
      "AND (?{digest} = '' OR coalesce(s.settings ->> '$.model_digest', ?{digest}) = ?{digest}) "
      "AND (?{model} = '' OR s.settings ->> '$.model_digest' IS NOT NULL OR coalesce(s.model, ?{model}) = ?{model})",
      fmt::arg("device", first), fmt::arg("digest", first + 1), fmt::arg("model", first + 2));
}

void Store::enqueue(SubmissionId submission, int64_t priority) {
  Query(*database_,
        "INSERT INTO queue (submission, agent, priority, available) SELECT id, agent, ?, ? FROM submissions WHERE id = ?",
        priority, options_.clock(), submission)
      .run();
}

void Store::enqueue_trial(int64_t trial) {
  Query(*database_,
        "INSERT INTO queue (submission, trial, agent, priority, available) SELECT submission, id, agent, 0, ? FROM trials "
        "WHERE id = ?",
        options_.clock(), trial)
      .run();
}

void Store::enqueue_confirmation(int64_t confirmation, int64_t priority) {
  Query(*database_,
        "INSERT INTO queue (submission, confirmation, agent, priority, available) SELECT submission, id, agent, ?, ? "
        "FROM confirmations WHERE id = ?",
        priority, options_.clock(), confirmation)
      .run();
}

std::optional<Lease> Store::claim(const std::string& worker, Time duration, const Equipment& equipment) {
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  const Time time = options_.clock();  // after that of whoever has put a job back
  const auto next = next_job(*database_, time, equipment);
  if (!next) return std::nullopt;
  const Job& job = next->job;
  const int64_t attempt = attempts_of(*database_, job) + 1;
  Query(*database_,
        "INSERT INTO evaluations (submission, trial, confirmation, attempt, worker, started) VALUES (?, ?, ?, ?, ?, ?)",
        job.submission, job.trial, job.confirmation, attempt, worker, time)
      .run();
  const Lease lease{job.submission, database_->last_id(), attempt,           worker, time + duration,
                    job.trial,      next->seed,           next->confirmation};
  Query(*database_, "UPDATE queue SET evaluation = ?, lease_owner = ?, lease_expiry = ? WHERE id = ?", lease.evaluation, worker,
        lease.expiry, job.id)
      .run();
  Query(*database_, "UPDATE agents SET served = ? WHERE id = ?", lease.evaluation, next->agent).run();
  set_running(job, time, attempt);
  transaction.commit();
  return lease;
}

void Store::set_running(const Job& job, Time time, int64_t attempt) {
  if (job.trial) return set_trial(*database_, *job.trial, TrialState::kRunning, time);
  if (job.confirmation) {
    set_confirmation(*database_, *job.confirmation, ConfirmationState::kRunning);
    append("confirmation", job.submission, confirmation_event(ConfirmationState::kRunning));
    return;
  }
  set_status(*database_, job.submission, Status::kRunning, time);
  append("running", job.submission, nlohmann::json{{"attempt", attempt}}.dump());
}

bool Store::is_suited(SubmissionId submission, const Equipment& equipment) {
  Query query(*database_, fmt::format("SELECT 1 FROM submissions s WHERE {} AND s.id = ?4", is_suited_sql(1)), equipment.device,
              equipment.model_digest, equipment.model, submission);
  return query.step();
}

int64_t Store::count_waiting_for_others(const std::vector<Equipment>& equipments) {
  constexpr int kParameters = 3;
  std::string suited = "FALSE";
  for (size_t i = 0; i < equipments.size(); ++i) {
    suited += fmt::format(" OR ({})", is_suited_sql(1 + kParameters * static_cast<int>(i)));
  }
  Query query(*database_,
              fmt::format("SELECT COUNT(*) FROM queue q JOIN submissions s ON s.id = q.submission WHERE NOT ({})", suited));
  for (const Equipment& equipment : equipments) {
    for (const std::string& value : {equipment.device, equipment.model_digest, equipment.model}) query.bind(value);
  }
  query.step();
  return query.integer(0);
}

}  // namespace sluice::store
