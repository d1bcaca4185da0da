// What can be read of trials: one, a page, the best.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>

#include "store/database/cursor.h"
#include "store/database/filter.h"
#include "store/database/sqlite.h"
#include "store/store.h"

namespace sluice::store {

namespace {

constexpr const char* kSelectTrial =
    "SELECT t.id, t.study, t.number, a.name, t.submission, t.parameters, t.state, t.told, t.evaluation, t.created, t.started, "
    "t.finished, t.seed, e.verdict, e.message, e.hint FROM trials t JOIN agents a ON a.id = t.agent LEFT JOIN evaluations e ON "
    "e.id = "
    "t.evaluation";

/// Rows of `kSelectTrial` with their values, by two queries however many there are.
std::vector<Trial> read_trials(Database& database, Query& query) {
  std::vector<Trial> trials;
  std::vector<int64_t> ids;
  std::unordered_map<int64_t, size_t> places;
  while (query.step()) {
    places.emplace(query.integer(0), trials.size());
    ids.push_back(query.integer(0));
    Trial& trial = trials.emplace_back();
    trial.study = query.integer(1);
    trial.number = query.integer(2);
    trial.agent = query.text(3);
    trial.submission = query.integer(4);
    trial.parameters = query.text(5);
    trial.state = trial_state_of(query.text(6));
    trial.is_told = query.integer(7) != 0;
    trial.evaluation = query.optional_integer(8);
    trial.created = query.integer(9);
    trial.started = query.optional_integer(10);
    trial.finished = query.optional_integer(11);
    trial.seed = query.optional_integer(12);
    if (!query.is_null(13)) trial.status = status_of(query.text(13));
    trial.message = query.text(14);
    trial.hint = query.text(15);
  }
  Query values(database,
               "SELECT t.id, m.name, m.value, m.low, m.high, m.unit FROM trials t JOIN metrics m ON m.evaluation = t.evaluation "
               "WHERE t.id IN (SELECT value FROM json_each(?1)) AND m.task = '' AND m.length = 0 UNION ALL "
               "SELECT trial, name, value, NULL, NULL, '' FROM told_values WHERE trial IN (SELECT value FROM json_each(?1)) "
               "ORDER BY 1, 2",
               fmt::format("[{}]", fmt::join(ids, ",")));
  while (values.step()) {
    trials[places.at(values.integer(0))].values.push_back(
        {values.text(1), "", 0, values.real(2), values.optional_real(3), values.optional_real(4), values.text(5)});
  }
  return trials;
}

}  // namespace

std::optional<Trial> Store::trial(StudyId study, int64_t number) {
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  Query query(*database_, fmt::format("{} WHERE t.study = ? AND t.number = ?", kSelectTrial), study, number);
  std::vector<Trial> found = read_trials(*database_, query);
  if (found.empty()) return std::nullopt;
  return std::move(found.front());
}

TrialPage Store::trials(StudyId study, const TrialFilter& filter, const std::string& cursor, int limit) {
  limit = std::clamp(limit, 1, Limits::kPage);
  const TimeLimit time(*database_, kMostSearch);
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  const std::string where = "WHERE t.study = ?1 AND (?2 = '' OR t.state = ?2) AND (?3 IS NULL OR t.submission = ?3)";
  const std::string state = filter.state ? name_of(*filter.state) : "";
  Query query(*database_, fmt::format("{} {} AND t.number >= ?4 ORDER BY t.number LIMIT ?5", kSelectTrial, where), study, state,
              filter.submission, cursor.empty() ? 0 : number_of_cursor(cursor), limit + 1);
  TrialPage page{read_trials(*database_, query), {}, {}};
  if (static_cast<int>(page.trials.size()) > limit) {
    page.next = cursor_of(page.trials.back().number);
    page.trials.pop_back();
  }
  if (cursor.empty()) {
    Query count(*database_, fmt::format("SELECT COUNT(*) FROM trials t {}", where), study, state, filter.submission);
    count.step();
    page.total = count.integer(0);
  }
  return page;
}

BestTrials Store::best_trials(StudyId study, const Objective& objective) {
  const TimeLimit time(*database_, kMostSearch);
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  const char* compared =
      "LEFT JOIN metrics m ON m.evaluation = t.evaluation AND m.name = ?2 AND m.task = '' AND m.length = 0 "
      "LEFT JOIN told_values v ON v.trial = t.id AND v.name = ?2 "
      "WHERE t.study = ?1 AND t.state = 'complete' AND coalesce(m.value, v.value) IS NOT NULL";
  Query query(*database_,
              fmt::format("{} {} ORDER BY coalesce(m.value, v.value) {}, t.number LIMIT ?3 OFFSET ?4", kSelectTrial, compared,
                          objective.is_maximized ? "DESC" : "ASC"),
              study, objective.metric, std::clamp(objective.limit, 1, Limits::kPage), objective.skip);
  BestTrials best{read_trials(*database_, query), 0};
  Query count(*database_, fmt::format("SELECT COUNT(*) FROM trials t {}", compared), study, objective.metric);
  count.step();
  best.total = count.integer(0);
  return best;
}

}  // namespace sluice::store
