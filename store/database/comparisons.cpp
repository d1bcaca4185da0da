// Comparisons of verdicts, and the family tree.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "store/database/filter.h"
#include "store/database/sqlite.h"
#include "store/database/summaries.h"
#include "store/store.h"

namespace sluice::store {

namespace {

/// A comparison is among those that passed, unless the filter asks for another status.
Filter with_status(Filter filter) {
  if (!filter.status) filter.status = Status::kPassed;
  return filter;
}

std::vector<Ranked> measured(Database& database, const Ranking& ranking, const std::string& order, int limit, int64_t skip) {
  const Conditions conditions(with_status(ranking.filter));
  Query query(database,
              fmt::format("SELECT {}, m.name, m.task, m.length, m.value, m.low, m.high, m.unit, e.finished FROM metrics m "
                          "JOIN evaluations e ON e.id = m.evaluation JOIN submissions s ON s.judged = e.id "
                          "JOIN agents a ON a.id = s.agent WHERE m.name = ? AND m.task = ? AND m.length = ? AND {} "
                          "ORDER BY {}, s.id LIMIT ? OFFSET ?",
                          kSummaryColumns, conditions.sql(), order),
              ranking.metric, ranking.task, ranking.length);
  conditions.bind(query);
  query.bind(int64_t{limit});
  query.bind(skip);
  std::vector<Ranked> rows;
  constexpr int kAt = kSummaryWidth;
  while (query.step()) {
    rows.push_back({read_summary(query),
                    {query.text(kAt), query.text(kAt + 1), query.integer(kAt + 2), query.real(kAt + 3),
                     query.optional_real(kAt + 4), query.optional_real(kAt + 5), query.text(kAt + 6)},
                    query.integer(kAt + 7)});
  }
  return rows;
}

/// How many of a ranking's rows meet a condition, whose parameters come last.
template <class... Values>
int64_t count_rows(Database& database, const Ranking& ranking, const std::string& condition, const Values&... values) {
  const Conditions conditions(with_status(ranking.filter));
  Query query(database,
              fmt::format("SELECT COUNT(*) FROM metrics m JOIN evaluations e ON e.id = m.evaluation "
                          "JOIN submissions s ON s.judged = e.id JOIN agents a ON a.id = s.agent "
                          "WHERE m.name = ? AND m.task = ? AND m.length = ? AND {}{}",
                          conditions.sql(), condition),
              ranking.metric, ranking.task, ranking.length);
  conditions.bind(query);
  (query.bind(values), ...);
  query.step();
  return query.integer(0);
}

int64_t count_better(Database& database, const Ranking& ranking, double value) {
  return count_rows(database, ranking, ranking.higher_is_better ? " AND m.value > ?" : " AND m.value < ?", value);
}

/// Adds what their summaries lack.
template <class Row>
void complete_rows(Database& database, std::vector<Row>& rows) {
  std::vector<SubmissionSummary*> summaries;
  for (Row& row : rows) summaries.push_back(&row.submission);
  complete_summaries(database, summaries);
}

constexpr int kAll = -1;  // SQLite's LIMIT

}  // namespace

std::vector<Ranked> Store::leaderboard(const Ranking& ranking) {
  const TimeLimit limit(*database_, kMostSearch);
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  const char* order = ranking.higher_is_better ? "m.value DESC" : "m.value";
  std::vector<Ranked> rows = measured(*database_, ranking, order, std::max(ranking.limit, 1), ranking.skip);
  complete_rows(*database_, rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == 0) {
      rows[i].rank = ranking.skip == 0 ? 1 : count_better(*database_, ranking, rows[i].metric.value) + 1;
    } else {
      const bool is_equal = rows[i].metric.value == rows[i - 1].metric.value;
      rows[i].rank = is_equal ? rows[i - 1].rank : ranking.skip + static_cast<int64_t>(i) + 1;
    }
  }
  return rows;
}

int64_t Store::count_measured(const Ranking& ranking) {
  const TimeLimit limit(*database_, kMostSearch);
  return count_rows(*database_, ranking, "");
}

std::vector<HistoryPoint> Store::history(const Ranking& ranking) {
  const TimeLimit limit(*database_, kMostSearch);
  std::vector<HistoryPoint> points;
  for (const Ranked& row : measured(*database_, ranking, "e.finished", kAll, 0)) {
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
              fmt::format("SELECT {}, x.value, y.value FROM submissions s JOIN agents a ON a.id = s.agent "
                          "JOIN metrics x ON x.evaluation = s.judged AND x.name = ? AND x.task = '' AND x.length = 0 "
                          "JOIN metrics y ON y.evaluation = s.judged AND y.name = ? AND y.task = '' AND y.length = 0 "
                          "WHERE {} ORDER BY x.value DESC, y.value DESC, s.id",
                          kSummaryColumns, conditions.sql()),
              metric, speed);
  conditions.bind(query);
  std::vector<FrontPoint> front;
  while (query.step()) {
    const FrontPoint point{read_summary(query), query.real(kSummaryWidth), query.real(kSummaryWidth + 1)};
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
  Query found(*database_, fmt::format("WITH RECURSIVE related (id) AS (SELECT ? UNION {}) SELECT id FROM related", recursion),
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
