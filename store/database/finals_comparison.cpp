// What the first model and that of finals say of the same flows, and where they disagree.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "store/database/filter.h"
#include "store/database/finals.h"
#include "store/database/ranks.h"
#include "store/database/standings.h"
#include "store/store.h"

namespace sluice::store {

namespace {

constexpr size_t kMostPaired = 2000;  // flows, the best of the final: pairs of them are looked at one by one
constexpr int64_t kFewest = 4;        // flows of which a rank correlation says anything

Comparable comparable(const Judgement& judgement) {
  return {judgement.metric->value, judgement.metric->low, judgement.metric->high};
}

/// Those that have a verdict of the first model.
std::vector<Finalist> judged_first(Database& database, const std::string& metric, const Filter& filter) {
  const Conditions conditions(filter);
  std::vector<Finalist> all;
  Query query(database,
              fmt::format("SELECT s.id, a.name, s.name, json_remove(s.settings, '$.seconds'), "
                          "iif(s.status = 'passed', coalesce(v.verdict, s.status), s.status), "
                          "{}, {}, {}, m.unit FROM finals f JOIN submissions s ON s.id = f.submission "
                          "JOIN agents a ON a.id = s.agent {} LEFT {} WHERE s.same_as IS NULL AND {} ORDER BY s.id",
                          standing_column("m", "value"), standing_column("m", "low"), standing_column("m", "high"),
                          kJoinConfirmed, join_metric("m"), conditions.sql()),
              metric, "", 0);
  conditions.bind(query);
  while (query.step()) {
    Finalist one{query.integer(0), query.text(1), query.text(2), {query.text(3), status_of(query.text(4)), {}}, 0, {}};
    if (!query.is_null(5)) {
      one.first.metric = {metric, "", 0, query.real(5), query.optional_real(6), query.optional_real(7), query.text(8)};
    }
    if (is_verdict(one.first.status)) all.push_back(std::move(one));
  }
  return all;
}

/// Those that have a verdict of both.
std::vector<Finalist> finalists(Database& database, const std::string& metric, const Filter& filter) {
  std::vector<Finalist> all = judged_first(database, metric, filter);
  std::vector<SubmissionId> ids;
  for (const Finalist& one : all) ids.push_back(one.submission);
  std::unordered_map<SubmissionId, Final> finals;
  for (Final& last : finals_of(database, fmt::format("[{}]", fmt::join(ids, ",")), metric)) finals[last.first] = std::move(last);
  for (Finalist& one : all) {
    const Final& last = finals.at(one.submission);
    one.final_submission = last.submission;
    one.last = {last.settings, last.confirmed && last.status == Status::kPassed ? *last.confirmed : last.status, {}};
    if (!last.metrics.empty()) one.last.metric = last.metrics.front();
  }
  std::erase_if(all, [](const Finalist& one) { return !is_verdict(one.last.status); });
  return all;
}

bool passed_both(const Finalist& one) {
  return one.first.status == Status::kPassed && one.last.status == Status::kPassed && one.first.metric && one.last.metric;
}

/// Whether figures of both may be compared: judged by the same models and suites.
bool is_alike(const Finalist& one, const Finalist& other) {
  return one.first.settings == other.first.settings && one.last.settings == other.last.settings;
}

int sign(double number) { return static_cast<int>(number > 0) - static_cast<int>(number < 0); }

/// Kendall's tau-b, of pairs that are added one by one.
class RankCorrelation {
 public:
  void add(double first, double last) {
    agreement_ += sign(first) * sign(last);
    of_first_ += static_cast<int>(first != 0);
    of_last_ += static_cast<int>(last != 0);
  }
  std::optional<double> value() const {
    if (of_first_ == 0 || of_last_ == 0) return std::nullopt;
    return static_cast<double>(agreement_) / std::sqrt(static_cast<double>(of_first_) * static_cast<double>(of_last_));
  }

 private:
  int64_t agreement_ = 0;
  int64_t of_first_ = 0;  // pairs that the first model does not tie
  int64_t of_last_ = 0;
};

/// Looks at all pairs of flows that passed both.
void compare_pairs(std::vector<Finalist>& paired, size_t most, FinalsComparison& comparison) {
  std::stable_sort(paired.begin(), paired.end(),
                   [](const Finalist& one, const Finalist& other) { return one.last.metric->value > other.last.metric->value; });
  paired.resize(std::min(paired.size(), kMostPaired));
  RankCorrelation correlation;
  std::vector<bool> is_compared(paired.size());
  for (size_t i = 0; i < paired.size(); ++i) {
    for (size_t j = i + 1; j < paired.size(); ++j) {
      const Finalist& one = paired[i];
      const Finalist& other = paired[j];
      if (!is_alike(one, other)) continue;
      is_compared[i] = is_compared[j] = true;
      correlation.add(one.first.metric->value - other.first.metric->value, one.last.metric->value - other.last.metric->value);
      const bool is_reversed = is_better(comparable(one.last), comparable(other.last), true) &&
                               is_better(comparable(other.first), comparable(one.first), true);
      if (!is_reversed) continue;
      ++comparison.reversed_total;
      if (comparison.reversed.size() < most) comparison.reversed.emplace_back(one, other);
    }
  }
  if (std::count(is_compared.begin(), is_compared.end(), true) >= kFewest) comparison.agreement = correlation.value();
}

}  // namespace

FinalsComparison Store::compare_finals(const std::string& metric, const Filter& filter, int limit) {
  const TimeLimit time(*database_, kMostSearch);
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  const auto most = static_cast<size_t>(std::max(limit, 1));
  FinalsComparison comparison;
  std::vector<Finalist> paired;
  for (Finalist& one : finalists(*database_, metric, filter)) {
    ++comparison.flows;
    const bool is_divided = (one.first.status == Status::kPassed) != (one.last.status == Status::kPassed);
    if (is_divided && comparison.divided.size() < most) comparison.divided.push_back(one);
    comparison.divided_total += static_cast<int64_t>(is_divided);
    if (passed_both(one)) paired.push_back(std::move(one));
  }
  comparison.passed_both = static_cast<int64_t>(paired.size());
  compare_pairs(paired, most, comparison);
  return comparison;
}

}  // namespace sluice::store
