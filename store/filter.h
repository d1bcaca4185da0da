#pragma once

#include <string>
#include <vector>

#include "store/records.h"
#include "store/sqlite.h"

namespace sluice::store {

/// Columns of a SubmissionSummary, first in a row; `s` are submissions and `a` their agents.
constexpr const char* kSummaryColumns = "s.id, a.name, s.name, s.status, s.created, s.updated";
constexpr const char* kSelectSummary =
    "SELECT s.id, a.name, s.name, s.status, s.created, s.updated FROM submissions s JOIN agents a ON a.id = s.agent";
SubmissionSummary read_summary(const Query& query);

/// A filter as a condition of SQL.
class Conditions {
 public:
  explicit Conditions(const Filter& filter);
  /// "TRUE AND s.model = ? AND ..."
  const std::string& sql() const { return sql_; }
  void bind(Query& query) const;

 private:
  void add(const std::string& condition, const std::string& value);

  std::string sql_ = "TRUE";
  std::vector<std::string> values_;
};

}  // namespace sluice::store
