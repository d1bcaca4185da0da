#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "store/database/filter.h"
#include "store/database/ranks.h"
#include "store/database/sqlite.h"
#include "store/records.h"

// What submissions stand for where they are compared: of each metric what was confirmed or, as long as there is no such value,
// what was judged. What its confirmation refutes stands for nothing, nor what shares the verdict of another one, which does.

namespace sluice::store {

/// A comparison is among those that passed, unless the filter asks for another status.
Filter with_status(Filter filter);

/// Joins to submissions `s` the confirmation `c` of the last verdict, once it is done, and its evaluation `v`; as SQL.
constexpr const char* kJoinConfirmed =
    "LEFT JOIN confirmations c ON c.judged = s.judged AND c.state = 'done' LEFT JOIN evaluations v ON v.id = c.evaluation";
/// What it does not refute, and what does not share another one's verdict.
constexpr const char* kStands = "(v.verdict IS NULL OR v.verdict = 'passed') AND s.same_as IS NULL";

/// Joins, after those, metric `m` of the last verdict, with three parameters (name, task and length), and the confirmed `mc`.
std::string join_metric(const std::string& m);
/// A column of that metric, "value", "low" or "high": the confirmed one if there is any.
std::string standing_column(const std::string& m, const std::string& column);

/// A submission by one metric.
struct Standing {
  SubmissionId submission = 0;
  Comparable compared;
  std::string unit;
  Time finished = 0;  // when that was found
  bool is_confirmed = false;
  /// Where it stands among others, whatever the metric: before it are those with a place that comes first here.
  enum class Place : uint8_t { kPassedFinal, kJudged, kFell } place = Place::kJudged;
};

/// All of a ranking, without its limit, the best first; by the metric alone, or by finals (finals.h).
std::vector<Standing> standings(Database& database, const Ranking& ranking);

/// A point of a front.
struct FrontPlace {
  double value = 0;  // of a metric of which more is better
  double speed = 0;

  bool is_before(const FrontPlace& other) const { return value > other.value || (value == other.value && speed > other.speed); }
};

/// What was judged of a submission; nothing if one of both was not measured.
std::optional<FrontPlace> judged_place(Database& database, SubmissionId submission, const std::string& metric,
                                       const std::string& speed);
/// Whether nothing that passed with the same model, device and suite beats the place of `submission` in both.
bool is_on_front(Database& database, SubmissionId submission, const FrontPlace& place, const std::string& metric,
                 const std::string& speed);

}  // namespace sluice::store
