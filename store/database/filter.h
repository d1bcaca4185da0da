#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "store/database/sqlite.h"
#include "store/records.h"

namespace sluice::store {

constexpr std::chrono::milliseconds kMostSearch{2000};  // for a query with a filter, whatever others have put into the database

/// A filter as a condition of SQL; `s` are submissions and `a` their agents.
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
