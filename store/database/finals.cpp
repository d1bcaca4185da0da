// Finals: asking for them and reading them. They are judged as all submissions are.

#include "store/database/finals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "store/database/claims.h"
#include "store/folder/sodium.h"
#include "store/folder/text_checks.h"
#include "store/store.h"

namespace sluice::store {

namespace {

constexpr int64_t kMostWaiting = 32;  // finals of the same settings: the best go first, and the others have time
constexpr int64_t kLast = -1;         // priority: after all that agents hand in

/// Submissions `s`, their finals `t`, whose verdict `o` has, and what confirms that: `c` and its evaluation `v`.
constexpr const char* kFrom =
    "FROM submissions s JOIN finals f ON f.submission = coalesce(s.same_as, s.id) JOIN submissions t ON t.id = f.final "
    "JOIN submissions o ON o.id = coalesce(t.same_as, t.id) "
    "LEFT JOIN confirmations c ON c.judged = o.judged AND c.state = 'done' LEFT JOIN evaluations v ON v.id = c.evaluation";

int64_t room_for(Database& database, const std::string& settings) {
  Query query(database,
              "SELECT COUNT(*) FROM queue q CROSS JOIN submissions s ON s.id = q.submission WHERE q.trial IS NULL "
              "AND q.confirmation IS NULL AND s.automatic = 1 AND s.settings = ?",
              settings);
  query.step();
  return std::max<int64_t>(0, kMostWaiting - query.integer(0));
}

/// What passed with the metric or by the suite of the run, was not refuted, and has no final with these settings, the best first.
/// One that somebody else has cancelled is none.
std::vector<SubmissionId> candidates(Database& database, const FinalRun& run, const std::string& settings) {
  std::vector<SubmissionId> found;
  Query query(database,
              fmt::format("SELECT s.id FROM submissions s LEFT JOIN metrics m ON m.evaluation = s.judged AND m.name = ?5 "
                          "AND m.task = '' AND m.length = 0 WHERE {} AND s.status = 'passed' AND s.same_as IS NULL AND (m.value "
                          "IS NOT NULL OR s.suite = ?7) "
                          "AND s.id NOT IN (SELECT id FROM submissions WHERE automatic = 1) AND s.settings <> ?4 "
                          "AND NOT EXISTS (SELECT 1 FROM confirmations c JOIN evaluations v ON v.id = c.evaluation "
                          "WHERE c.judged = s.judged AND c.state = 'done' AND v.verdict <> 'passed') "
                          "AND NOT EXISTS (SELECT 1 FROM finals f JOIN submissions t ON t.id = f.final WHERE f.submission = s.id "
                          "AND t.settings = ?4 AND NOT (t.status = 'cancelled' AND t.automatic = 1 AND t.agent <> s.agent)) "
                          "ORDER BY m.value DESC, s.id LIMIT ?6",
                          is_suited_sql(1)),
              run.first.device, run.first.model_digest, run.first.model, settings, run.metric, room_for(database, settings),
              run.suite);
  while (query.step()) found.push_back(query.integer(0));
  return found;
}

/// The submission with the script of `first` and those settings; nothing if nobody has handed it in.
std::optional<SubmissionId> find_known(Database& database, const std::string& hash) {
  Query query(database, "SELECT id FROM submissions WHERE content_hash = ?", Blob{hash});
  if (!query.step()) return std::nullopt;
  return query.integer(0);
}

SubmissionId insert(Database& database, SubmissionId first, const std::string& settings, const std::string& hash, Time time) {
  Query(database,
        "INSERT INTO submissions (agent, name, status, priority, content_hash, created, updated, notes, settings, script, "
        "automatic) SELECT agent, name, 'queued', ?1, ?2, ?3, ?3, notes, ?4, script, 1 FROM submissions WHERE id = ?5",
        kLast, Blob{hash}, time, settings, first)
      .run();
  const SubmissionId id = database.last_id();
  Query(database,
        "INSERT INTO parents (submission, position, parent) SELECT ?, position, parent FROM parents WHERE submission = ?", id,
        first)
      .run();
  return id;
}

/// Gives a final that another agent has cancelled to the agent of `first`; whether it did.
bool takes_over(Database& database, SubmissionId last, SubmissionId first) {
  Query query(database,
              "UPDATE submissions SET agent = (SELECT agent FROM submissions WHERE id = ?2) WHERE id = ?1 AND automatic = 1 "
              "AND status = 'cancelled' AND agent <> (SELECT agent FROM submissions WHERE id = ?2) RETURNING id",
              last, first);
  return query.step();
}

/// By name, what a final stands for: each metric as confirmed or, without that, as judged.
using Values = std::map<std::string, Metric>;

void add_metrics(Database& database, const std::string& join, const std::string& ids, const std::string& metric,
                 std::unordered_map<SubmissionId, Values>& values) {
  Query query(database,
              fmt::format("SELECT s.id, m.name, m.value, m.low, m.high, m.unit {} {} AND m.task = '' AND m.length = 0 "
                          "AND (?1 = '' OR m.name = ?1) WHERE s.id IN (SELECT value FROM json_each(?2))",
                          kFrom, join),
              metric, ids);
  while (query.step()) {
    values[query.integer(0)].insert_or_assign(query.text(1), Metric{query.text(1), "", 0, query.real(2), query.optional_real(3),
                                                                    query.optional_real(4), query.text(5)});
  }
}

/// The place of a submission, whose final this is, if there is one; one that passed stands by the final from now on.
void place(Standing& standing, const Final* last) {
  if (last == nullptr || !is_verdict(last->status)) return;
  if (!last->passed()) {
    standing.place = Standing::Place::kFell;
  } else if (!last->metrics.empty()) {
    const Metric& metric = last->metrics.front();
    standing.place = Standing::Place::kPassedFinal;
    standing.compared = {metric.value, metric.low, metric.high};
    standing.unit = metric.unit;
    standing.finished = last->finished.value_or(standing.finished);
    standing.is_confirmed = last->confirmed.has_value();
  }
}

}  // namespace

bool is_verdict(Status status) {
  return is_final(status) && status != Status::kCancelled && status != Status::kRuntimeError && status != Status::kTimeout;
}

std::vector<SubmissionId> Store::ask_finals(const FinalRun& run) {
  const std::string settings = canonical_object("settings", run.settings);
  std::vector<SubmissionId> made;
  if (candidates(*database_, run, settings).empty()) return made;  // others need not wait for that
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  // Those that are there already take no room.
  for (std::vector<SubmissionId> next; !(next = candidates(*database_, run, settings)).empty();) {
    for (const SubmissionId first : next) made.push_back(make_final(first, settings));
  }
  transaction.commit();
  return made;
}

SubmissionId Store::make_final(SubmissionId first, const std::string& settings) {
  Query flow(*database_, "SELECT s.script, a.name, s.name FROM submissions s JOIN agents a ON a.id = s.agent WHERE s.id = ?",
             first);
  flow.step();
  const std::string hash = hash_of({flow.text(0), settings});
  const std::optional<SubmissionId> known = find_known(*database_, hash);
  const SubmissionId id = known ? *known : insert(*database_, first, settings, hash, options_.clock());
  if (known && takes_over(*database_, id, first)) requeue(id, kLast);
  Query(*database_,
        "INSERT INTO finals (submission, final) VALUES (?, ?) ON CONFLICT (submission) DO UPDATE SET final = excluded.final",
        first, id)
      .run();
  if (!known) {
    enqueue(id, kLast);
    append("submitted", id, nlohmann::json{{"agent", flow.text(1)}, {"name", flow.text(2)}, {"final_of", first}}.dump());
  }
  append("final", first, nlohmann::json{{"final", id}}.dump());
  return id;
}

std::vector<Final> finals_of(Database& database, const std::string& ids, const std::string& metric) {
  std::vector<Final> finals;
  std::unordered_map<SubmissionId, Values> values;
  add_metrics(database, "JOIN metrics m ON m.evaluation = t.judged", ids, metric, values);
  add_metrics(database, "JOIN metrics m ON m.evaluation = v.id AND v.verdict = 'passed'", ids, metric, values);
  Query query(database,
              fmt::format("SELECT s.id, t.id, t.settings, t.status, v.verdict, coalesce(v.finished, e.finished) {} "
                          "LEFT JOIN evaluations e ON e.id = t.judged WHERE s.id IN (SELECT value FROM json_each(?)) "
                          "ORDER BY s.id",
                          kFrom),
              ids);
  while (query.step()) {
    Final& last = finals.emplace_back();
    last.first = query.integer(0);
    last.submission = query.integer(1);
    last.settings = query.text(2);
    last.status = status_of(query.text(3));
    if (!query.is_null(4)) last.confirmed = status_of(query.text(4));
    last.finished = query.optional_integer(5);
    for (auto& [name, value] : values[last.first]) last.metrics.push_back(std::move(value));
  }
  return finals;
}

void place_by_finals(Database& database, const Ranking& ranking, std::vector<Standing>& standings) {
  std::vector<SubmissionId> ids;
  for (const Standing& standing : standings) ids.push_back(standing.submission);
  const std::vector<Final> finals = finals_of(database, fmt::format("[{}]", fmt::join(ids, ",")), ranking.metric);
  std::unordered_map<SubmissionId, const Final*> by_first;
  for (const Final& each : finals) by_first.emplace(each.first, &each);
  for (Standing& standing : standings) {
    const auto found = by_first.find(standing.submission);
    place(standing, found == by_first.end() ? nullptr : found->second);
  }
  std::stable_sort(standings.begin(), standings.end(), [&](const Standing& one, const Standing& other) {
    if (one.place != other.place) return one.place < other.place;
    const bool by_final = one.place == Standing::Place::kPassedFinal;
    return by_final &&
           (ranking.higher_is_better ? one.compared.value > other.compared.value : one.compared.value < other.compared.value);
  });
}

}  // namespace sluice::store
