// Trials: adding, following their submissions, being told.

#include "store/database/trials.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include "store/database/submissions.h"
#include "store/error.h"
#include "store/folder/sodium.h"
#include "store/folder/text_checks.h"
#include "store/store.h"

namespace sluice::store {

namespace {

[[noreturn]] void refuse(const std::string& message, const std::string& hint = {}) {
  throw StoreError(ErrorKind::kInvalid, message, hint);
}

/// What trials need of their study.
struct StudyRow {
  StudyId id = 0;
  std::string settings;
  StudyState state = StudyState::kOpen;
};

StudyRow required_study(Database& database, StudyId id) {
  Query query(database, "SELECT settings, state FROM studies WHERE id = ?", id);
  if (!query.step()) throw StoreError(ErrorKind::kNotFound, fmt::format("there is no study {}", id));
  return {id, query.text(0), study_state_of(query.text(1))};
}

void require_open(const StudyRow& study) {
  if (study.state == StudyState::kOpen) return;
  throw StoreError(ErrorKind::kConflict, fmt::format("study {} is closed", study.id), "open it, or make another one");
}

/// The drafts in the form in which they are kept. Throws kInvalid.
std::vector<TrialDraft> checked(std::vector<TrialDraft> drafts, const std::string& settings) {
  if (drafts.empty() || drafts.size() > Limits::kTrialsAtOnce) {
    refuse(fmt::format("{} trials at once", drafts.size()), fmt::format("from 1 to {}", Limits::kTrialsAtOnce));
  }
  for (TrialDraft& draft : drafts) {
    if (draft.submission.has_value() == draft.flow.has_value()) refuse("a trial is of a submission or of a flow, of one of both");
    if (draft.seed && *draft.seed < 0) refuse(fmt::format("the seed {} is negative", *draft.seed));
    check_size("parameters", draft.parameters, Limits::kParameters);
    draft.parameters = canonical_object("parameters", draft.parameters);
    if (!draft.flow) continue;
    draft.flow->settings = settings;
    draft.flow->idempotency_key.clear();
    draft.flow = checked_draft(*draft.flow);
  }
  return drafts;
}

std::string hash_of_request(const std::vector<TrialDraft>& drafts) {
  std::vector<std::string> parts;
  for (const TrialDraft& draft : drafts) {
    parts.push_back(draft.flow ? hash_of_request(*draft.flow) : fmt::format("{}", *draft.submission));
    parts.push_back(draft.parameters);
    parts.push_back(draft.seed ? fmt::format("{}", *draft.seed) : std::string());
  }
  return hash_of({parts.begin(), parts.end()});
}

std::optional<AddedTrials> known_by_key(Database& database, StudyId study, const std::string& key, const std::string& hash) {
  if (key.empty()) return std::nullopt;
  Query query(database, "SELECT first, count, request_hash FROM trial_requests WHERE study = ? AND key = ?", study, key);
  if (!query.step()) return std::nullopt;
  if (query.blob(2) == hash) return AddedTrials{query.integer(0), query.integer(1)};
  throw StoreError(ErrorKind::kConflict, fmt::format("the idempotency key \"{}\" was used with other trials", key),
                   "use a new key for each request, and the same key only to send the same one again");
}

void remember_key(Database& database, StudyId study, const std::string& key, const std::string& hash, const AddedTrials& added,
                  Time time) {
  if (key.empty()) return;
  Query(database, "DELETE FROM trial_requests WHERE created < ?", time - kKeyAge).run();
  Query(database, "INSERT INTO trial_requests (study, key, request_hash, first, count, created) VALUES (?, ?, ?, ?, ?, ?)", study,
        key, Blob{hash}, added.first, added.count, time)
      .run();
}

int64_t next_number(Database& database, StudyId study) {
  Query query(database, "SELECT coalesce(MAX(number) + 1, 0) FROM trials WHERE study = ?", study);
  query.step();
  return query.integer(0);
}

/// Trials are compared with one another, which verdicts by different rules cannot be.
void require_settings(Database& database, const StudyRow& study, SubmissionId submission) {
  Query query(database, "SELECT settings FROM submissions WHERE id = ?", submission);
  if (!query.step()) throw StoreError(ErrorKind::kNotFound, fmt::format("there is no submission {}", submission));
  if (query.text(0) == study.settings) return;
  refuse(fmt::format("submission {} has other settings than study {}", submission, study.id),
         "give its script instead: with the study's settings it is another submission");
}

/// What its owner cancelled nobody else has judged, not by a seed either.
void require_wanted(Database& database, const Agent& who, SubmissionId submission) {
  Query query(database, "SELECT status, agent FROM submissions WHERE id = ?", submission);
  query.step();
  if (status_of(query.text(0)) != Status::kCancelled || may_revive(who, query.integer(1))) return;
  throw StoreError(ErrorKind::kConflict, fmt::format("submission {} was cancelled, and is not {}'s", submission, who.name),
                   "its owner or an administrator may have it judged; or change the flow, which makes it another one");
}

std::map<std::string, double> told_values(Database& database, int64_t trial) {
  std::map<std::string, double> values;
  Query query(database, "SELECT name, value FROM told_values WHERE trial = ?", trial);
  while (query.step()) values.emplace(query.text(0), query.real(1));
  return values;
}

/// The row of a trial that is to be told its end, or nothing if it was told the same before.
std::optional<int64_t> trial_to_tell(Database& database, StudyId study, int64_t number, const Told& told) {
  Query query(database, "SELECT id, state, told FROM trials WHERE study = ? AND number = ?", study, number);
  if (!query.step()) throw StoreError(ErrorKind::kNotFound, fmt::format("study {} has no trial {}", study, number));
  const int64_t id = query.integer(0);
  const TrialState state = trial_state_of(query.text(1));
  if (!is_final(state)) return id;
  const bool is_told = query.integer(2) != 0;
  if (is_told && state == told.state && told_values(database, id) == told.values) return std::nullopt;
  throw StoreError(ErrorKind::kConflict, fmt::format("trial {} of study {} is {} already", number, study, name_of(state)),
                   "a trial that has ended stays as it is: add another one");
}

void check_told(const Told& told) {
  const size_t count = told.values.size();
  if (!is_final(told.state)) refuse(fmt::format("a trial ends complete, failed or pruned, not {}", name_of(told.state)));
  if (told.state == TrialState::kComplete && count == 0) refuse("a trial that is complete has a value");
  if (told.state == TrialState::kFailed && count > 0)
    refuse("a trial that failed has no values", "tell it as pruned, or complete");
  if (count > Limits::kToldValues)
    refuse(fmt::format("{} values are too many", count), fmt::format("at most {}", Limits::kToldValues));
  for (const auto& [name, value] : told.values) {
    check_text("value's name", name, Limits::kName);
    check_one_line("value's name", name);
    if (!std::isfinite(value)) refuse(fmt::format("the value {} is not finite", name));
  }
}

/// The evaluation whose verdict is the status of a submission that has ended, for trials that are added afterwards.
std::optional<EvaluationId> evaluation_of_status(Database& database, SubmissionId submission) {
  Query query(database,
              "SELECT e.id FROM submissions s JOIN evaluations e ON e.id = s.judged AND e.verdict = s.status WHERE s.id = ?",
              submission);
  if (!query.step()) return std::nullopt;
  return query.integer(0);
}

}  // namespace

void follow_submission(Database& database, SubmissionId submission, std::optional<EvaluationId> ended_by) {
  // While it is judged the evaluation is the queue's.
  Query query(database,
              "SELECT s.status, e.id, e.started, coalesce(e.finished, s.updated) FROM submissions s "
              "LEFT JOIN queue q ON q.submission = s.id AND q.trial IS NULL AND q.confirmation IS NULL "
              "LEFT JOIN evaluations e ON e.id = coalesce(q.evaluation, ?1) WHERE s.id = ?2",
              ended_by, submission);
  query.step();
  const TrialState state = trial_state_of(status_of(query.text(0)));
  const bool ends = is_final(state);
  Query(database,
        "UPDATE trials SET state = ?, evaluation = ?, started = ?, finished = ? WHERE submission = ? AND seed IS NULL "
        "AND finished IS NULL",
        name_of(state), ends ? query.optional_integer(1) : std::nullopt, query.optional_integer(2),
        ends ? query.optional_integer(3) : std::nullopt, submission)
      .run();
}

void set_trial(Database& database, int64_t trial, TrialState state, Time time, std::optional<EvaluationId> evaluation) {
  switch (state) {
    case TrialState::kWaiting:
      return Query(database, "UPDATE trials SET state = 'waiting', started = NULL WHERE id = ?", trial).run();
    case TrialState::kRunning:
      return Query(database, "UPDATE trials SET state = 'running', started = ? WHERE id = ?", time, trial).run();
    default:
      return Query(database, "UPDATE trials SET state = ?, evaluation = ?, finished = ? WHERE id = ?", name_of(state), evaluation,
                   time, trial)
          .run();
  }
}

AddedTrials Store::add_trials(const std::string& agent_name, StudyId study_id, const std::vector<TrialDraft>& drafts,
                              const std::string& idempotency_key, const std::function<void()>& may_be_added) {
  check_text("idempotency key", idempotency_key, Limits::kIdempotencyKey);
  const Time time = options_.clock();
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  const Agent agent = required_agent(agent_name);
  const StudyRow study = required_study(*database_, study_id);
  const std::vector<TrialDraft> kept = checked(drafts, study.settings);
  const std::string hash = hash_of_request(kept);
  if (const auto known = known_by_key(*database_, study_id, idempotency_key, hash)) return *known;
  require_open(study);
  if (may_be_added) may_be_added();
  const auto count = static_cast<int64_t>(kept.size());
  require_room(agent, "trials", count);
  AddedTrials added{next_number(*database_, study_id), count, true};
  int64_t number = added.first;
  int64_t spent = 0;  // of the agent's quota
  std::set<SubmissionId> followed;
  for (const TrialDraft& draft : kept) {
    const Submitted submitted = draft.flow ? take(agent, *draft.flow, spent) : Submitted{*draft.submission};
    require_settings(*database_, study, submitted.id);
    spent += submitted.is_new ? 1 : 0;
    if (draft.seed) {
      require_wanted(*database_, agent, submitted.id);
      require_quota(agent, spent++);
    }
    added.has_new_job |= submitted.is_new || draft.seed.has_value();
    Query(*database_,
          "INSERT INTO trials (study, number, agent, submission, parameters, seed, state, created) "
          "VALUES (?, ?, ?, ?, ?, ?, 'waiting', ?)",
          study_id, number++, agent.id, submitted.id, draft.parameters, draft.seed, time)
        .run();
    if (draft.seed) {
      enqueue_trial(database_->last_id());
    } else {
      followed.insert(submitted.id);
    }
  }
  for (const SubmissionId id : followed) follow_submission(*database_, id, evaluation_of_status(*database_, id));
  remember_key(*database_, study_id, idempotency_key, hash, added, time);
  transaction.commit();
  return added;
}

bool Store::tell(StudyId study, int64_t number, const Told& told) {
  check_told(told);
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  const std::optional<int64_t> id = trial_to_tell(*database_, study, number, told);
  if (!id) return false;
  Query(*database_, "UPDATE trials SET state = ?, told = 1, finished = ? WHERE id = ?", name_of(told.state), options_.clock(),
        *id)
      .run();
  dequeue("trial", *id, "the trial was told its end while it was judged");
  for (const auto& [name, value] : told.values) {
    Query(*database_, "INSERT INTO told_values (trial, name, value) VALUES (?, ?, ?)", *id, name, value).run();
  }
  transaction.commit();
  return true;
}

}  // namespace sluice::store
