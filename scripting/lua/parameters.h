#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

/// What parameters of a script are set to, as texts, by name.
using ParameterValues = std::map<std::string, std::string>;

struct ParameterLimits {
  static constexpr size_t kNumber = 64;       // of a script
  static constexpr size_t kNameLength = 64;   // letters, digits and '_'
  static constexpr size_t kTextLength = 256;  // of a value
};

/// The parameters of one script (sluice.parameter), which its programs share.
class Parameters {
 public:
  explicit Parameters(ParameterValues values) : values_(std::move(values)) {}

  /// Notes that there is one. What it is set to, or null: it keeps its own value. Valid as long as this is.
  const std::string* declare(const std::string& name);
  /// A text that lives as long as this.
  std::string_view keep(std::string text) { return *texts_.insert(std::move(text)).first; }
  size_t size() const { return declared_.size(); }
  bool has(const std::string& name) const { return declared_.contains(name); }
  /// Throws InputError if something is set that is no parameter.
  void check_all_declared() const;

 private:
  ParameterValues values_;
  std::set<std::string> declared_;
  std::set<std::string> texts_;
};

/// A number as values write it, "3", "0.5" or "1/16"; false: it is none.
bool parse_number(std::string_view text, double& number);

}  // namespace sluice
