// Submissions: handing in, reading, listing, cancelling.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "store/database/cursor.h"
#include "store/database/filter.h"
#include "store/database/sqlite.h"
#include "store/database/submissions.h"
#include "store/database/summaries.h"
#include "store/error.h"
#include "store/folder/sodium.h"
#include "store/folder/text_checks.h"
#include "store/store.h"

namespace sluice::store {

namespace {

std::vector<SubmissionId> parents_of(Database& database, SubmissionId id) {
  std::vector<SubmissionId> parents;
  Query query(database, "SELECT parent FROM parents WHERE submission = ? ORDER BY position", id);
  while (query.step()) parents.push_back(query.integer(0));
  return parents;
}

std::optional<SubmissionId> known_by_key(Database& database, const Agent& agent, const Draft& draft) {
  if (draft.idempotency_key.empty()) return std::nullopt;
  Query query(database, "SELECT submission, request_hash FROM idempotency_keys WHERE agent = ? AND key = ?", agent.id,
              draft.idempotency_key);
  if (!query.step()) return std::nullopt;
  if (query.blob(1) != hash_of_request(draft)) {
    throw StoreError(ErrorKind::kConflict,
                     fmt::format("the idempotency key \"{}\" was used with another submission", draft.idempotency_key),
                     "use a new key for each submission, and the same key only to send the same one again");
  }
  return query.integer(0);
}

/// A submission with the same content.
struct Known {
  SubmissionId id = 0;
  Status status = Status::kQueued;
  int64_t agent = 0;

  /// Whether it is judged after all if `who` brings it: it has no verdict, and is not what somebody else does not want judged.
  bool is_wanted(const Agent& who) const {
    return status == Status::kRuntimeError || (status == Status::kCancelled && may_revive(who, agent));
  }
};

std::optional<Known> known_by_content(Database& database, const std::string& hash) {
  Query query(database, "SELECT id, status, agent FROM submissions WHERE content_hash = ?", Blob{hash});
  if (!query.step()) return std::nullopt;
  return Known{query.integer(0), status_of(query.text(1)), query.integer(2)};
}

void remember_key(Database& database, const Agent& agent, const Draft& draft, SubmissionId id, Time time) {
  if (draft.idempotency_key.empty()) return;
  Query(database, "DELETE FROM idempotency_keys WHERE created < ?", time - kKeyAge).run();
  Query(database, "INSERT INTO idempotency_keys (agent, key, request_hash, submission, created) VALUES (?, ?, ?, ?, ?)", agent.id,
        draft.idempotency_key, Blob{hash_of_request(draft)}, id, time)
      .run();
}

void require_parents(Database& database, const Draft& draft) {
  for (const SubmissionId parent : draft.parents) {
    Query known(database, "SELECT 1 FROM submissions WHERE id = ?", parent);
    if (!known.step()) throw StoreError(ErrorKind::kNotFound, fmt::format("there is no submission {} to be a parent", parent));
  }
}

SubmissionId insert(Database& database, const Agent& agent, const Draft& draft, const std::string& hash, Time time) {
  Query(database,
        "INSERT INTO submissions (agent, name, status, priority, content_hash, created, updated, notes, settings, script) "
        "VALUES (?, ?, 'queued', ?, ?, ?, ?, ?, ?, ?)",
        agent.id, draft.name, draft.priority, Blob{hash}, time, time, draft.notes, draft.settings, draft.script)
      .run();
  const SubmissionId id = database.last_id();
  int position = 0;
  for (const SubmissionId parent : draft.parents) {
    Query(database, "INSERT INTO parents (submission, position, parent) VALUES (?, ?, ?)", id, position++, parent).run();
  }
  return id;
}

int64_t count(Database& database, const Conditions& conditions) {
  Query query(database,
              fmt::format("SELECT COUNT(*) FROM submissions s JOIN agents a ON a.id = s.agent WHERE {}", conditions.sql()));
  conditions.bind(query);
  query.step();
  return query.integer(0);
}

}  // namespace

Draft checked_draft(const Draft& draft) {
  Draft kept = draft;
  check_text("name", draft.name, Limits::kName);
  check_one_line("name", draft.name);
  check_text("notes", draft.notes, Limits::kNotes);
  check_text("idempotency key", draft.idempotency_key, Limits::kIdempotencyKey);
  check_size("script", draft.script, Limits::kScript);
  if (draft.script.empty()) throw StoreError(ErrorKind::kInvalid, "the script is empty");
  check_size("settings", draft.settings, Limits::kSettings);
  kept.settings = canonical_object("settings", draft.settings);
  if (draft.parents.size() > Limits::kParents) {
    throw StoreError(ErrorKind::kInvalid, fmt::format("{} parents are too many", draft.parents.size()),
                     fmt::format("at most {}", Limits::kParents));
  }
  kept.parents.clear();
  for (const SubmissionId parent : draft.parents) {
    if (std::find(kept.parents.begin(), kept.parents.end(), parent) == kept.parents.end()) kept.parents.push_back(parent);
  }
  return kept;
}

bool may_revive(const Agent& who, int64_t owner) { return owner == who.id || who.role == Role::kAdmin; }

/// What somebody hands in is theirs, though the server has made it as a final before.
void adopt(Database& database, SubmissionId id) {
  Query(database, "UPDATE submissions SET automatic = 0 WHERE id = ? AND automatic = 1", id).run();
}

std::string hash_of_request(const Draft& draft) {
  std::string parents;
  for (const SubmissionId parent : draft.parents) parents += fmt::format("{},", parent);
  return hash_of({draft.name, draft.notes, draft.script, draft.settings, parents});
}

Submitted Store::submit(const std::string& agent, const Draft& draft) {
  const Draft checked = checked_draft(draft);
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  const Submitted submitted = take(required_agent(agent), checked);
  transaction.commit();
  return submitted;
}

Submitted Store::take(const Agent& agent, const Draft& checked, int64_t spent) {
  const Time time = options_.clock();
  if (const auto known = known_by_key(*database_, agent, checked)) return {*known, false};
  require_parents(*database_, checked);
  const std::string hash = hash_of({checked.script, checked.settings});
  const std::optional<Known> same = known_by_content(*database_, hash);
  const bool wanted = !same || same->is_wanted(agent);
  if (wanted) require_quota(agent, spent);
  const SubmissionId id = same ? same->id : insert(*database_, agent, checked, hash, time);
  if (same) adopt(*database_, id);
  remember_key(*database_, agent, checked, id, time);
  if (same && wanted) {
    Query(*database_, "INSERT INTO resubmissions (agent, time, submission) VALUES (?, ?, ?)", agent.id, time, id).run();
    requeue(id, checked.priority);
  } else if (wanted) {
    enqueue(id, checked.priority);
    append("submitted", id, nlohmann::json{{"agent", agent.name}, {"name", checked.name}}.dump());
  }
  return {id, wanted};
}

std::optional<Submission> Store::get(SubmissionId id) {
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  Query query(*database_,
              "SELECT s.id, a.name, s.name, s.notes, s.script, s.settings, s.content_hash, s.status, s.priority, s.created, "
              "s.updated, s.judged FROM submissions s JOIN agents a ON a.id = s.agent WHERE s.id = ?",
              id);
  if (!query.step()) return std::nullopt;
  return Submission{query.integer(0),
                    query.text(1),
                    query.text(2),
                    query.text(3),
                    query.text(4),
                    query.text(5),
                    hexadecimal(query.blob(6)),
                    status_of(query.text(7)),
                    query.integer(8),
                    query.integer(9),
                    query.integer(10),
                    parents_of(*database_, id),
                    query.optional_integer(11)};
}

Page Store::list(const Filter& filter, const std::string& cursor, int limit) {
  limit = std::clamp(limit, 1, Limits::kPage);
  const TimeLimit time(*database_, kMostSearch);
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  const Conditions conditions(filter);
  Query query(*database_, fmt::format("{} WHERE {}{} ORDER BY s.id DESC LIMIT ?", kSelectSummary, conditions.sql(),
                                      cursor.empty() ? "" : " AND s.id < ?"));
  conditions.bind(query);
  if (!cursor.empty()) query.bind(number_of_cursor(cursor));
  query.bind(limit + 1);
  Page page;
  while (query.step()) page.submissions.push_back(read_summary(query));
  if (static_cast<int>(page.submissions.size()) > limit) {
    page.submissions.pop_back();
    page.next = cursor_of(page.submissions.back().id);
  }
  complete_summaries(*database_, page.submissions);
  if (cursor.empty() && page.next.empty()) {
    page.total = static_cast<int64_t>(page.submissions.size());
  } else if (cursor.empty() && filter.text.empty()) {
    page.total = count(*database_, conditions);
  }
  return page;
}

std::optional<SubmissionSummary> Store::summary(SubmissionId id) {
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  Query query(*database_, fmt::format("{} WHERE s.id = ?", kSelectSummary), id);
  if (!query.step()) return std::nullopt;
  std::vector<SubmissionSummary> found = {read_summary(query)};
  complete_summaries(*database_, found);
  return std::move(found.front());
}

std::optional<Status> Store::find_status(SubmissionId id) {
  Query query(*database_, "SELECT status FROM submissions WHERE id = ?", id);
  if (!query.step()) return std::nullopt;
  return status_of(query.text(0));
}

std::vector<std::string> Store::model_digests(const std::string& model) {
  Query query(*database_,
              "SELECT DISTINCT settings ->> '$.model_digest' AS digest FROM submissions WHERE model = ? AND digest IS NOT NULL",
              model);
  std::vector<std::string> digests;
  while (query.step()) digests.push_back(query.text(0));
  return digests;
}

bool Store::has_verdicts() { return Query(*database_, "SELECT 1 FROM submissions WHERE judged IS NOT NULL LIMIT 1").step(); }

}  // namespace sluice::store
