#include "store/database/filter.h"

#include "store/folder/text_checks.h"

namespace sluice::store {

namespace {

/// A pattern of LIKE that finds `text` as it stands, anywhere.
std::string pattern_of(const std::string& text) {
  std::string pattern = "%";
  for (const char c : text) {
    if (c == '%' || c == '_' || c == '\\') pattern += '\\';
    pattern += c;
  }
  return pattern + "%";
}

}  // namespace

Conditions::Conditions(const Filter& filter) {
  add("a.name = ?", filter.agent);
  add("s.status = ?", filter.status ? name_of(*filter.status) : "");
  add("s.model = ?", filter.model);
  add("s.device = ?", filter.device);
  add("s.suite = ?", filter.suite);
  if (filter.model.empty() && !filter.with_finals) sql_ += " AND s.id NOT IN (SELECT id FROM submissions WHERE automatic = 1)";
  check_size("text to look for", filter.text, Limits::kSoughtText);
  if (!filter.text.empty()) {
    sql_ += R"( AND (s.name || char(10) || s.notes || char(10) || s.script) LIKE ? ESCAPE '\')";
    values_.push_back(pattern_of(filter.text));
  }
}

void Conditions::add(const std::string& condition, const std::string& value) {
  if (value.empty()) return;
  sql_ += " AND " + condition;
  values_.push_back(value);
}

void Conditions::bind(Query& query) const {
  for (const std::string& value : values_) query.bind(value);
}

}  // namespace sluice::store
