// Confirmations: asking for them, by agents and by itself, and reading them. Claims and ends are those of all jobs.

#include "store/database/confirmations.h"

#include <fmt/format.h>
#include <sodium.h>

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "store/database/shared_verdicts.h"
#include "store/database/standings.h"
#include "store/error.h"
#include "store/folder/sodium.h"
#include "store/store.h"

namespace sluice::store {

namespace {

constexpr int64_t kFactor = 4;  // times the samples of the suite
constexpr int64_t kLast = -1;   // priority: after all that agents ask for
constexpr size_t kSeedBytes = 32;

std::string new_seed() {
  std::string seed(kSeedBytes, '\0');
  randombytes_buf(seed.data(), seed.size());
  return seed;
}

/// A submission that is to be confirmed, and its confirmation, if there is one.
struct Candidate {
  bool is_free = false;  // of a final that the server made, with that of its flow: it costs nothing
  EvaluationId judged = 0;
  int64_t agent = 0;
  std::optional<int64_t> confirmation = {};  // its row
  ConfirmationState state = ConfirmationState::kQueued;
  bool is_automatic = false;
};

/// Throws kNotFound, kConflict.
Candidate required_candidate(Database& database, SubmissionId submission) {
  Query query(
      database,
      "SELECT s.status, s.judged, s.agent, c.id, c.state, c.automatic, s.automatic = 1 AND EXISTS (SELECT 1 FROM finals f "
      "JOIN submissions o ON o.id = f.submission JOIN confirmations p ON p.judged = o.judged WHERE f.final = s.id) "
      "FROM submissions s "
      "LEFT JOIN confirmations c ON c.judged = s.judged WHERE s.id = ?",
      submission);
  if (!query.step()) throw StoreError(ErrorKind::kNotFound, fmt::format("there is no submission {}", submission));
  const std::string status = query.text(0);
  if (!is_final(status_of(status))) {
    throw StoreError(ErrorKind::kConflict,
                     fmt::format("submission {} is {}: it has no verdict yet to confirm", submission, status),
                     "ask once it has passed");
  }
  if (status_of(status) != Status::kPassed) {
    throw StoreError(ErrorKind::kConflict, fmt::format("submission {} is {}: only what passed is confirmed", submission, status));
  }
  Candidate candidate{query.integer(6) != 0, query.integer(1), query.integer(2), query.optional_integer(3)};
  if (candidate.confirmation) {
    candidate.state = confirmation_state_of(query.text(4));
    candidate.is_automatic = query.integer(5) != 0;
  }
  return candidate;
}

bool is_automatic_submission(Database& database, SubmissionId submission) {
  Query query(database, "SELECT automatic FROM submissions WHERE id = ?", submission);
  return query.step() && query.integer(0) != 0;
}

/// Which one the next of its model, device and suite is.
int64_t next_try(Database& database, SubmissionId submission) {
  Query query(database,
              "SELECT coalesce(MAX(c.tries), 0) + 1 FROM submissions s JOIN submissions x ON x.model IS s.model "
              "AND x.device IS s.device AND x.suite IS s.suite JOIN confirmations c ON c.submission = x.id WHERE s.id = ?",
              submission);
  query.step();
  return query.integer(0);
}

int64_t insert(Database& database, SubmissionId submission, const Candidate& candidate, Time time) {
  Query(database,
        "INSERT INTO confirmations (submission, judged, agent, automatic, state, tries, factor, seed, created) "
        "VALUES (?, ?, ?, 0, 'queued', ?, ?, ?, ?)",
        submission, candidate.judged, candidate.agent, next_try(database, submission), kFactor, Blob{new_seed()}, time)
      .run();
  return database.last_id();
}

/// One that the server asked for and that waits, of the agent of a submission and for the same model, device and suite; one
/// that was not tried rather than one that was.
struct Waiting {
  int64_t confirmation = 0;
  SubmissionId submission = 0;
  bool was_tried = false;  // a worker has had its questions
};

std::optional<Waiting> waiting_beside(Database& database, SubmissionId submission) {
  Query query(database,
              "SELECT c.id, c.submission, EXISTS (SELECT 1 FROM evaluations e WHERE e.submission = c.submission AND "
              "e.confirmation = c.id) FROM submissions s JOIN confirmations c ON c.agent = s.agent AND c.automatic = 1 AND "
              "c.state = 'queued' JOIN submissions x ON x.id = c.submission AND x.model IS s.model AND x.device IS s.device AND "
              "x.suite IS s.suite WHERE s.id = ? ORDER BY 3 LIMIT 1",
              submission);
  if (!query.step()) return std::nullopt;
  return Waiting{query.integer(0), query.integer(1), query.integer(2) != 0};
}

/// Lets another submission have the place of one that waits, in the count of tries, too: nothing has been learned by it.
void move(Database& database, const Waiting& waiting, SubmissionId submission, const Candidate& candidate, Time time) {
  Query(database, "DELETE FROM queue WHERE confirmation = ?", waiting.confirmation).run();
  Query(database, "UPDATE confirmations SET submission = ?, judged = ?, created = ? WHERE id = ?", submission, candidate.judged,
        time, waiting.confirmation)
      .run();
}

constexpr const char* kSelect =
    "SELECT c.id, s.id, c.judged, a.name, c.automatic, c.state, c.tries, c.factor, c.seed, e.verdict, e.message, e.hint, "
    "c.created, c.finished FROM submissions s JOIN submissions o ON o.id = coalesce(s.same_as, s.id) "
    "JOIN confirmations c ON c.judged = o.judged JOIN agents a ON a.id = c.agent "
    "LEFT JOIN evaluations e ON e.id = c.evaluation WHERE s.id IN (SELECT value FROM json_each(?)) ORDER BY s.id";

Confirmation read_confirmation(const Query& query) {
  Confirmation confirmation;
  confirmation.id = query.integer(0);
  confirmation.submission = query.integer(1);
  confirmation.judged = query.integer(2);
  confirmation.agent = query.text(3);
  confirmation.is_automatic = query.integer(4) != 0;
  confirmation.state = confirmation_state_of(query.text(5));
  confirmation.tries = query.integer(6);
  confirmation.factor = query.integer(7);
  const bool is_done = confirmation.state == ConfirmationState::kDone;
  if (is_done) confirmation.seed = hexadecimal(query.blob(8));
  if (is_done && !query.is_null(9)) confirmation.status = status_of(query.text(9));
  confirmation.message = query.text(10);
  confirmation.hint = query.text(11);
  confirmation.created = query.integer(12);
  confirmation.finished = query.optional_integer(13);
  return confirmation;
}

}  // namespace

std::vector<Confirmation> confirmations_of(Database& database, const std::string& ids) {
  std::vector<Confirmation> found;
  std::unordered_map<SubmissionId, size_t> places;
  Query query(database, kSelect, ids);
  while (query.step()) {
    found.push_back(read_confirmation(query));
    places.emplace(found.back().submission, found.size() - 1);
  }
  if (found.empty()) return found;
  Query metrics(database,
                "SELECT s.id, m.name, m.value, m.low, m.high, m.unit FROM submissions s "
                "JOIN submissions o ON o.id = coalesce(s.same_as, s.id) "
                "JOIN confirmations c ON c.judged = o.judged AND c.state = 'done' JOIN metrics m ON m.evaluation = c.evaluation "
                "WHERE s.id IN (SELECT value FROM json_each(?)) AND m.task = '' AND m.length = 0 ORDER BY s.id, m.name",
                ids);
  while (metrics.step()) {
    found[places.at(metrics.integer(0))].metrics.push_back(
        {metrics.text(1), "", 0, metrics.real(2), metrics.optional_real(3), metrics.optional_real(4), metrics.text(5)});
  }
  return found;
}

void set_confirmation(Database& database, int64_t confirmation, ConfirmationState state, std::optional<Time> finished,
                      std::optional<EvaluationId> evaluation) {
  Query(database, "UPDATE confirmations SET state = ?, finished = ?, evaluation = ? WHERE id = ?", name_of(state), finished,
        evaluation, confirmation)
      .run();
}

ConfirmationState confirmation_state_of(Status status) {
  const bool says_something = status != Status::kRuntimeError && status != Status::kTimeout;
  return says_something ? ConfirmationState::kDone : ConfirmationState::kFailed;
}

std::string confirmation_event(ConfirmationState state, std::optional<Status> status) {
  nlohmann::json data = {{"state", name_of(state)}};
  if (status) data["status"] = name_of(*status);
  return data.dump();
}

void Store::begin_confirmation(int64_t confirmation, int64_t agent, bool is_automatic) {
  Query(*database_,
        "UPDATE confirmations SET state = 'queued', finished = NULL, evaluation = NULL, agent = ?, automatic = ?, seed = ?, "
        "created = ? WHERE id = ?",
        agent, static_cast<int>(is_automatic), Blob{new_seed()}, options_.clock(), confirmation)
      .run();
  enqueue_confirmation(confirmation, is_automatic ? kLast : 0);
}

AskedConfirmation Store::ask_confirmation(const std::string& agent_name, SubmissionId submission) {
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  const SubmissionId first = first_of(*database_, submission);
  const Agent agent = required_agent(agent_name);
  Candidate candidate = required_candidate(*database_, first);
  const bool is_known = candidate.confirmation.has_value();
  const bool has_failed = is_known && candidate.state == ConfirmationState::kFailed;
  const bool waits_behind = is_known && candidate.is_automatic && candidate.state == ConfirmationState::kQueued;
  if (!is_known || has_failed || waits_behind) {
    // With its flow a final is confirmed once. Of those that the server made no confirmation counts by itself.
    const bool is_free = candidate.is_free && !has_failed;
    if (!is_free) require_quota(agent);
    if (!is_known) candidate.confirmation = insert(*database_, first, candidate, options_.clock());
    if (!is_free && (has_failed || is_automatic_submission(*database_, first))) {
      Query(*database_, "INSERT INTO resubmissions (agent, time, submission) VALUES (?, ?, ?)", agent.id, options_.clock(), first)
          .run();
    }
    Query(*database_, "DELETE FROM queue WHERE confirmation = ?", *candidate.confirmation).run();
    begin_confirmation(*candidate.confirmation, agent.id, false);
    append("confirmation", first, confirmation_event(ConfirmationState::kQueued));
  }
  AskedConfirmation asked{confirmations_of(*database_, fmt::format("[{}]", submission)).at(0), !is_known || has_failed};
  transaction.commit();
  return asked;
}

bool Store::confirm_if_on_front(SubmissionId submission, const std::string& metric, const std::string& speed) {
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  const Candidate candidate = required_candidate(*database_, submission);
  const std::optional<FrontPlace> place = judged_place(*database_, submission, metric, speed);
  if (candidate.confirmation || !place || !is_on_front(*database_, submission, *place, metric, speed)) return false;
  std::optional<int64_t> confirmation;
  if (const auto waiting = waiting_beside(*database_, submission)) {
    const auto other = judged_place(*database_, waiting->submission, metric, speed);
    if (waiting->was_tried || (other && !place->is_before(*other))) return false;
    move(*database_, *waiting, submission, candidate, options_.clock());
    confirmation = waiting->confirmation;
  }
  if (!confirmation) confirmation = insert(*database_, submission, candidate, options_.clock());
  begin_confirmation(*confirmation, candidate.agent, true);
  append("confirmation", submission, confirmation_event(ConfirmationState::kQueued));
  transaction.commit();
  return true;
}

void Store::end_confirmation(SubmissionId submission) {
  Query query(*database_, "SELECT id FROM confirmations WHERE submission = ? AND finished IS NULL", submission);
  if (!query.step()) return;
  const int64_t confirmation = query.integer(0);
  const auto running = dequeue("confirmation", confirmation, "the submission is judged again");
  set_confirmation(*database_, confirmation, ConfirmationState::kFailed, options_.clock(), running);
  append("confirmation", submission, confirmation_event(ConfirmationState::kFailed));
}

std::optional<Confirmation> Store::confirmation(SubmissionId submission) {
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  std::vector<Confirmation> found = confirmations_of(*database_, fmt::format("[{}]", submission));
  if (found.empty()) return std::nullopt;
  return std::move(found.front());
}

}  // namespace sluice::store
