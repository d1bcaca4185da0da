// Comparisons of verdicts, and the family tree.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "store/database/filter.h"
#include "store/database/sqlite.h"
#include "store/database/standings.h"
#include "store/database/summaries.h"
#include "store/store.h"

namespace sluice::store {

namespace {

/// By the time of their verdicts.
std::vector<Ranked> measured(Database& database, const Ranking& ranking) {
  const Conditions conditions(with_status(ranking.filter));
  Query query(
      database,
      fmt::format("SELECT {}, m.value, e.finished FROM metrics m "
                  "JOIN evaluations e ON e.id = m.evaluation JOIN submissions s ON s.judged = e.id "
                  "JOIN agents a ON a.id = s.agent WHERE m.name = ? AND m.task = ? AND m.length = ? AND s.same_as IS NULL AND {} "
                  "ORDER BY e.finished, s.id",
                  kSummaryColumns, conditions.sql()),
      ranking.metric, ranking.task, ranking.length);
  conditions.bind(query);
  std::vector<Ranked> rows;
  while (query.step()) {
    Ranked& row = rows.emplace_back();
    row.submission = read_summary(query);
    row.metric.value = query.real(kSummaryWidth);
    row.finished = query.integer(kSummaryWidth + 1);
  }
  return rows;
}

/// Adds what their summaries lack.
template <class Row>
void complete_rows(Database& database, std::vector<Row>& rows) {
  std::vector<SubmissionSummary*> summaries;
  for (Row& row : rows) summaries.push_back(&row.submission);
  complete_summaries(database, summaries);
}

/// The rank of entry `index`: all with a better place are before it, and of its own place those that are better.
int64_t rank_in_place(const std::vector<Standing>& all, size_t index, bool higher_is_better) {
  const auto same = std::find_if(all.begin(), all.end(), [&](const Standing& one) { return one.place == all[index].place; });
  const auto before = static_cast<size_t>(same - all.begin());
  std::vector<Comparable> values;
  for (size_t i = before; i <= index; ++i) values.push_back(all[i].compared);
  return static_cast<int64_t>(before) + rank_of(values, index - before, higher_is_better);
}

/// Those whose ids the rows have.
void read_summaries(Database& database, std::vector<Ranked>& rows) {
  std::vector<SubmissionId> ids;
  std::unordered_map<SubmissionId, size_t> places;
  for (const Ranked& row : rows) {
    places.emplace(row.submission.id, ids.size());
    ids.push_back(row.submission.id);
  }
  Query query(database, fmt::format("{} WHERE s.id IN (SELECT value FROM json_each(?))", kSelectSummary),
              fmt::format("[{}]", fmt::join(ids, ",")));
  while (query.step()) {
    SubmissionSummary summary = read_summary(query);
    rows[places.at(summary.id)].submission = std::move(summary);
  }
}

}  // namespace

std::vector<Ranked> Store::leaderboard(const Ranking& ranking) {
  const TimeLimit limit(*database_, kMostSearch);
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  const std::vector<Standing> all = standings(*database_, ranking);
  const size_t begin = std::min(all.size(), static_cast<size_t>(std::max<int64_t>(ranking.skip, 0)));
  const size_t end = std::min(all.size(), begin + static_cast<size_t>(std::max(ranking.limit, 1)));
  std::vector<Ranked> rows;
  for (size_t i = begin; i < end; ++i) {
    const Standing& standing = all[i];
    Ranked& row = rows.emplace_back();
    row.submission.id = standing.submission;
    row.metric = {ranking.metric,        ranking.task,           ranking.length, standing.compared.value,
                  standing.compared.low, standing.compared.high, standing.unit};
    row.finished = standing.finished;
    row.rank = rank_in_place(all, i, ranking.higher_is_better);
    row.is_confirmed = standing.is_confirmed;
    row.by_final = standing.place == Standing::Place::kPassedFinal;
  }
  read_summaries(*database_, rows);
  complete_rows(*database_, rows);
  return rows;
}

int64_t Store::count_ranked(const Ranking& ranking) {
  const TimeLimit limit(*database_, kMostSearch);
  Ranking plain = ranking;
  plain.by_finals = false;  // they change the order alone
  return static_cast<int64_t>(standings(*database_, plain).size());
}

int64_t Store::count_measured(const Ranking& ranking) {
  const TimeLimit limit(*database_, kMostSearch);
  const Conditions conditions(with_status(ranking.filter));
  Query query(*database_,
              fmt::format("SELECT COUNT(*) FROM metrics m JOIN evaluations e ON e.id = m.evaluation "
                          "JOIN submissions s ON s.judged = e.id JOIN agents a ON a.id = s.agent "
                          "WHERE m.name = ? AND m.task = ? AND m.length = ? AND s.same_as IS NULL AND {}",
                          conditions.sql()),
              ranking.metric, ranking.task, ranking.length);
  conditions.bind(query);
  query.step();
  return query.integer(0);
}

std::vector<HistoryPoint> Store::history(const Ranking& ranking) {
  const TimeLimit limit(*database_, kMostSearch);
  std::vector<HistoryPoint> points;
  for (const Ranked& row : measured(*database_, ranking)) {
    const double value = row.metric.value;
    double best = value;
    if (!points.empty()) {
      best = ranking.higher_is_better ? std::max(points.back().best, value) : std::min(points.back().best, value);
    }
    points.push_back(
        {row.submission.id, row.submission.agent, row.submission.name, row.finished, value, best, row.submission.settings});
  }
  points.resize(points.size() - std::min(points.size(), static_cast<size_t>(std::max<int64_t>(ranking.skip, 0))));
  const auto most = static_cast<size_t>(std::max(ranking.limit, 1));
  if (points.size() > most) points.erase(points.begin(), points.end() - static_cast<ptrdiff_t>(most));
  return points;
}

std::vector<FrontPoint> Store::pareto_front(const std::string& metric, const std::string& speed, const Filter& filter) {
  const TimeLimit limit(*database_, kMostSearch);
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  const Conditions conditions(with_status(filter));
  Query query(*database_,
              fmt::format("SELECT {}, {} AS value, {} AS pace, xc.value IS NOT NULL FROM submissions s "
                          "JOIN agents a ON a.id = s.agent {} {} {} WHERE {} AND {} ORDER BY value DESC, pace DESC, s.id",
                          kSummaryColumns, standing_column("x", "value"), standing_column("y", "value"), kJoinConfirmed,
                          join_metric("x"), join_metric("y"), kStands, conditions.sql()),
              metric, "", 0, speed, "", 0);
  conditions.bind(query);
  std::vector<FrontPoint> front;
  while (query.step()) {
    const FrontPoint point{read_summary(query), query.real(kSummaryWidth), query.real(kSummaryWidth + 1),
                           query.integer(kSummaryWidth + 2) != 0};
    // Rows come by falling value: one stays if it is faster than all before it, or equal in both to the one before it.
    const bool faster = front.empty() || point.speed > front.back().speed;
    const bool equal = !faster && point.speed == front.back().speed && point.value == front.back().value;
    if (faster || equal) front.push_back(point);
  }
  complete_rows(*database_, front);
  return front;
}

Relatives Store::related(const std::string& recursion, SubmissionId submission, bool with_itself, int64_t skip, int64_t most) {
  const TimeLimit limit(*database_, kMostSearch);
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  std::vector<SubmissionId> ids;  // the nearest first: SQLite takes what a recursion found in the order in which it was found
  // A final stands for nothing else than what it is the final of, which is there, unless others come from it.
  Query found(*database_,
              fmt::format("WITH RECURSIVE related (id) AS (SELECT ?1 UNION {}) SELECT id FROM related WHERE id = ?1 "
                          "OR (SELECT automatic FROM submissions WHERE id = related.id) = 0 "
                          "OR id IN (SELECT parent FROM parents)",
                          recursion),
              submission);
  while (found.step()) {
    if (with_itself || found.integer(0) != submission) ids.push_back(found.integer(0));
  }
  const auto total = static_cast<int64_t>(ids.size());
  const int64_t begin = std::clamp<int64_t>(skip, 0, total);
  const int64_t end = std::min(total, begin + std::max<int64_t>(most, 1));
  const std::vector<SubmissionId> wanted(ids.begin() + begin, ids.begin() + end);
  Relatives relatives{{}, total, end < total ? end : 0};
  Query query(*database_, fmt::format("{} WHERE s.id IN (SELECT value FROM json_each(?)) ORDER BY s.id", kSelectSummary),
              fmt::format("[{}]", fmt::join(wanted, ",")));
  while (query.step()) relatives.nodes.push_back(read_summary(query));
  complete_summaries(*database_, relatives.nodes);
  return relatives;
}

Relatives Store::ancestors(SubmissionId submission, int64_t skip, int64_t limit) {
  return related("SELECT p.parent FROM parents p JOIN related r ON p.submission = r.id", submission, false, skip, limit);
}

Relatives Store::descendants(SubmissionId submission, int64_t skip, int64_t limit) {
  return related("SELECT p.submission FROM parents p JOIN related r ON p.parent = r.id", submission, false, skip, limit);
}

Relatives Store::family(SubmissionId submission, int64_t skip, int64_t limit) {
  return related(
      "SELECT p.parent FROM parents p JOIN related r ON p.submission = r.id "
      "UNION SELECT p.submission FROM parents p JOIN related r ON p.parent = r.id",
      submission, true, skip, limit);
}

}  // namespace sluice::store
