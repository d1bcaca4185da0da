#include "store/database/standings.h"

#include <fmt/format.h>

#include "store/database/finals.h"

namespace sluice::store {

Filter with_status(Filter filter) {
  if (!filter.status) filter.status = Status::kPassed;
  return filter;
}

std::string join_metric(const std::string& m) {
  return fmt::format(
      "JOIN metrics {0} ON {0}.evaluation = s.judged AND {0}.name = ? AND {0}.task = ? AND {0}.length = ? "
      "LEFT JOIN metrics {0}c ON {0}c.evaluation = c.evaluation AND {0}c.name = {0}.name AND {0}c.task = {0}.task "
      "AND {0}c.length = {0}.length",
      m);
}

std::string standing_column(const std::string& m, const std::string& column) {
  return fmt::format("iif({0}c.value IS NULL, {0}.{1}, {0}c.{1})", m, column);
}

std::vector<Standing> standings(Database& database, const Ranking& ranking) {
  const Conditions conditions(with_status(ranking.filter));
  Query query(database,
              fmt::format("SELECT s.id, {} AS best, {}, {}, m.unit, e.finished, mc.value IS NOT NULL FROM submissions s "
                          "JOIN agents a ON a.id = s.agent {} {} "
                          "JOIN evaluations e ON e.id = iif(mc.value IS NULL, s.judged, c.evaluation) "
                          "WHERE {} AND {} ORDER BY best {}, s.id",
                          standing_column("m", "value"), standing_column("m", "low"), standing_column("m", "high"),
                          kJoinConfirmed, join_metric("m"), kStands, conditions.sql(), ranking.higher_is_better ? "DESC" : "ASC"),
              ranking.metric, ranking.task, ranking.length);
  conditions.bind(query);
  std::vector<Standing> all;
  while (query.step()) {
    all.push_back({query.integer(0),
                   {query.real(1), query.optional_real(2), query.optional_real(3)},
                   query.text(4),
                   query.integer(5),
                   query.integer(6) != 0});
  }
  if (ranking.by_finals) place_by_finals(database, ranking, all);
  return all;
}

std::optional<FrontPlace> judged_place(Database& database, SubmissionId submission, const std::string& metric,
                                       const std::string& speed) {
  Query query(database,
              "SELECT x.value, y.value FROM submissions s "
              "JOIN metrics x ON x.evaluation = s.judged AND x.name = ? AND x.task = '' AND x.length = 0 "
              "JOIN metrics y ON y.evaluation = s.judged AND y.name = ? AND y.task = '' AND y.length = 0 WHERE s.id = ?",
              metric, speed, submission);
  if (!query.step()) return std::nullopt;
  return FrontPlace{query.real(0), query.real(1)};
}

bool is_on_front(Database& database, SubmissionId submission, const FrontPlace& place, const std::string& metric,
                 const std::string& speed) {
  const std::string value = standing_column("x", "value");
  const std::string pace = standing_column("y", "value");
  Query query(
      database,
      fmt::format("SELECT 1 FROM submissions o JOIN submissions s ON s.model IS o.model AND s.device IS o.device "
                  "AND s.suite IS o.suite AND s.id <> o.id AND s.status = 'passed' {} {} {} "
                  "WHERE {} AND {value} >= ? AND {pace} >= ? AND ({value} > ? OR {pace} > ?) AND o.id = ? LIMIT 1",
                  kJoinConfirmed, join_metric("x"), join_metric("y"), kStands, fmt::arg("value", value), fmt::arg("pace", pace)),
      metric, "", 0, speed, "", 0, place.value, place.speed, place.value, place.speed, submission);
  return !query.step();
}

}  // namespace sluice::store
